#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "planner/predict/step_costs.hpp"
#include "planner/program/step_program.hpp"

// How a step's instructions share the streams of a device: each starts when its stream is free, the host has issued it
// and what it waits for (StepProgram::order) is done. The rules are written once, for any kind of clock: read_time has
// matrices of delays, read_trace a clock for each row.
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

// When each row is ready next.
class Clocks {
 public:
  explicit Clocks(std::size_t rows) : times_(rows) {}

  void start() { std::fill(times_.begin(), times_.end(), 0.0); }

  void wait(std::size_t row, std::size_t other) { times_[row] = std::max(times_[row], times_[other]); }
  void set(std::size_t row, std::size_t other) { times_[row] = times_[other]; }
  void spend(std::size_t row, double seconds) { times_[row] += seconds; }
  void run(std::size_t row, std::size_t /*index*/, double seconds) { spend(row, seconds); }

  double latest() const { return *std::max_element(times_.begin(), times_.end()); }
  void wait_for_all() { std::fill(times_.begin(), times_.end(), latest()); }

  std::vector<double>& times() { return times_; }
  double at(std::size_t row) const { return times_[row]; }

 private:
  std::vector<double> times_;
};

// Puts one instruction on the clocks. Clocks have
//   wait(row, other)         row is ready no sooner than other
//   set(row, other)          row is ready when other is
//   spend(row, seconds)      row is busy with nothing of its own
//   run(row, index, seconds) row is busy with an instruction
class Schedule {
 public:
  Schedule(const program::StepProgram& program, const StepCosts& costs, const Rows& rows)
      : program_(program), costs_(costs), rows_(rows) {
    leave_out(0);
  }

  // From here on these parts take no time; bits by ExposedPart.
  void leave_out(unsigned without) {
    without_ = without;
    const bool gaps = (without & bit(ExposedPart::launch_gaps)) == 0 && !costs_.one_stream;
    gap_ = gaps ? costs_.kernel_gap_s : 0;
    issue_ = gaps ? costs_.host_issue_s : 0;
  }

  static constexpr unsigned bit(ExposedPart part) { return 1U << static_cast<unsigned>(part); }

  program::Stream stream_of(std::size_t index) const {
    return costs_.one_stream ? program::Stream::compute : program_.code[index].stream;
  }

  template <class Clocks>
  void run(Clocks& clocks, std::size_t index, program::Phase phase) const {
    const program::Instruction& instruction = program_.code[index];
    const std::size_t compute = rows_.of(program::Stream::compute);
    const ExposedPart part = part_of(program_, instruction, phase);
    const double seconds = (without_ & bit(part)) != 0 ? 0 : costs_.seconds[index];
    if (costs_.one_stream) return clocks.run(compute, index, seconds);
    const std::size_t row = rows_.of(instruction.stream);
    clocks.spend(Rows::kHost, costs_.launches[index] * issue_);
    clocks.wait(row, Rows::kHost);
    for (const program::Order::Wait wait : program_.order.waits_of(index)) clocks.wait(row, rows_.of(wait));
    if (program::class_of(instruction.op) == program::Class::kernel) {
      clocks.spend(row, costs_.launches[index] * gap_);
    }
    clocks.run(row, index, seconds);
    if (is_collective(instruction.op) && row != compute) clocks.spend(compute, costs_.slowdown * seconds);
    if (part == StepCosts::kHoldsHost) clocks.spend(Rows::kHost, seconds);
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
  unsigned without_ = 0;
  double gap_ = 0, issue_ = 0;
};

}  // namespace zeroplan::predict
