#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "planner/predict/step_costs.hpp"
#include "planner/program/step_program.hpp"

// How a step's instructions share the streams of a device: each starts when its stream is free, the host has issued it
// and what it waits for (StepProgram::order) is done. The rules are written once, for any kind of clock: read_time keeps
// what sections do to clocks (delays.hpp), read_trace has a clock for each row.
namespace zeroplan::predict {

// What has a time of its own: the host that issues, each stream that the program uses, and of each event the executions
// that somebody still waits for.
class Rows {
 public:
  static constexpr std::size_t kHost = 0;

  explicit Rows(const program::StepProgram& program) {
    of_stream_[static_cast<std::size_t>(program::Stream::compute)] = count_++;
    for (const program::Instruction& instruction : program.code) {
      if (!program::is_executed(instruction.op)) continue;
      std::size_t& row = of_stream_[static_cast<std::size_t>(instruction.stream)];
      if (row == 0) row = count_++;
    }
    of_event_.reserve(program.order.events.size());
    for (const program::Order::Event& event : program.order.events) {
      of_event_.push_back(count_);
      count_ += std::size_t{event.oldest} + 1;
    }
  }

  std::size_t count() const { return count_; }
  std::size_t of(program::Stream stream) const { return of_stream_[static_cast<std::size_t>(stream)]; }
  std::size_t of(program::Order::Wait wait) const { return of_event_[wait.event] + wait.age; }
  std::size_t youngest(std::uint16_t event) const { return of_event_[event]; }

 private:
  std::size_t count_ = 1;
  std::array<std::size_t, program::kStreams> of_stream_{};
  std::vector<std::size_t> of_event_;
};

// An instruction that runs: the host issues it, then its row is busy with the gap before it and with itself.
struct Launch {
  std::size_t index = 0;
  ExposedPart part = ExposedPart::compute;
  double issue = 0, gap = 0, seconds = 0;
};

// When each row is ready next.
class Clocks {
 public:
  explicit Clocks(std::size_t rows) : times_(rows) {}

  void wait(std::size_t row, std::size_t other) { times_[row] = std::max(times_[row], times_[other]); }
  void set(std::size_t row, std::size_t other) { times_[row] = times_[other]; }
  void spend(std::size_t row, ExposedPart /*part*/, double seconds) { times_[row] += seconds; }
  // Returns when the instruction itself starts.
  double launch(std::size_t row, const Launch& launch) {
    times_[Rows::kHost] += launch.issue;
    wait(row, Rows::kHost);
    const double start = times_[row] += launch.gap;
    times_[row] += launch.seconds;
    return start;
  }

  double latest() const { return *std::max_element(times_.begin(), times_.end()); }
  void wait_for_all() { std::fill(times_.begin(), times_.end(), latest()); }

  double at(std::size_t row) const { return times_[row]; }

 private:
  std::vector<double> times_;
};

// Puts one instruction on the clocks. Clocks have
//   wait(row, other)           row is ready no sooner than other
//   set(row, other)            row is ready when other is
//   spend(row, part, seconds)  row is busy with nothing of its own; the part is whose time that is
//   launch(row, launch)        an instruction runs, when the host has issued it and the row is ready
class Schedule {
 public:
  Schedule(const program::StepProgram& program, const StepCosts& costs, const Rows& rows)
      : program_(program), costs_(costs), rows_(rows) {}

  program::Stream stream_of(std::size_t index) const {
    return costs_.one_stream ? program::Stream::compute : program_.code[index].stream;
  }

  template <class Clocks>
  void run(Clocks& clocks, std::size_t index, program::Phase phase) const {
    const program::Instruction& instruction = program_.code[index];
    const std::size_t compute = rows_.of(program::Stream::compute);
    const ExposedPart part = part_of(program_, instruction, phase);
    const double seconds = costs_.seconds[index];
    if (costs_.one_stream) {
      clocks.launch(compute, {index, part, 0, 0, seconds});
      return;
    }
    const std::size_t row = rows_.of(instruction.stream);
    for (const program::Order::Wait wait : program_.order.waits_of(index)) clocks.wait(row, rows_.of(wait));
    const bool is_kernel = program::class_of(instruction.op) == program::Class::kernel;
    const double launches = costs_.launches[index];
    clocks.launch(row, {index, part, launches * costs_.host_issue_s,
                        is_kernel ? launches * costs_.kernel_gap_s : 0, seconds});
    if (costs_.slowdown > 0 && row != compute && is_collective(instruction.op)) {
      clocks.spend(compute, part, costs_.slowdown * seconds);
    }
    if (part == StepCosts::kHoldsHost) clocks.spend(Rows::kHost, part, seconds);
    const std::uint16_t event = program_.order.mark(index).signals;
    if (event != program::Order::kNoEvent) signal(clocks, event, row);
  }

 private:
  template <class Clocks>
  void signal(Clocks& clocks, std::uint16_t event, std::size_t row) const {
    const std::size_t youngest = rows_.youngest(event);
    for (std::size_t age = program_.order.events[event].oldest; age > 0; --age) {
      clocks.set(youngest + age, youngest + age - 1);
    }
    clocks.set(youngest, row);
  }

  const program::StepProgram& program_;
  const StepCosts& costs_;
  const Rows& rows_;
};

}  // namespace zeroplan::predict
