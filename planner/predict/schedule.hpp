#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/describe/cluster.hpp"
#include "planner/predict/kernels.hpp"
#include "planner/predict/time.hpp"
#include "planner/predict/traffic.hpp"
#include "planner/program/step_program.hpp"

// How a step's instructions share the streams of a device: what each costs, what it runs on, what it waits
// for. The rules are written once, for any kind of clock: read_time has matrices of delays, read_trace a
// clock for each stream.
namespace zeroplan::predict {

// The host that issues kernels, the device's kernels, collectives of the data-parallel group, those of the
// tensor-parallel group that run beside a kernel, copies from and to host memory, and the last gather that
// was issued ahead.
enum class Ready : std::uint8_t { host, compute, communication, tensor, copies, gathered };
inline constexpr std::size_t kReady = 6;

// Seconds of each instruction of a program by its index, by itself; 0 for structure and memory.
struct StepCosts {
  std::vector<double> seconds;
  std::vector<double> waiting;   // of seconds: for other ranks; empty where ranks are taken to be even
  std::vector<double> launches;  // kernels of the engine for it
  double kernel_gap_s = 0, host_issue_s = 0;
  double slowdown = 0;  // of kernels by a collective beside them: their loss over the collective's time
  bool one_stream = false;

  double waiting_of(std::size_t index) const { return waiting.empty() ? 0 : waiting[index]; }
  // Without waiting for other ranks.
  double busy_of(std::size_t index) const { return seconds[index] - waiting_of(index); }
};

// Empty where the rates are not known; not a number where links that are used are not described.
std::optional<StepCosts> step_costs(const program::StepProgram& program, const describe::Cluster& cluster,
                                    const KernelRates& rates);

// Whose time an instruction is.
inline ExposedPart part_of(const program::Instruction& instruction, program::Phase phase) {
  if (is_collective(instruction.op)) {
    return instruction.group == program::Group::data_parallel ? ExposedPart::data_parallel
                                                              : ExposedPart::tensor_parallel;
  }
  if (is_host_copy(instruction.op)) return ExposedPart::host_copies;
  return phase == program::Phase::step ? ExposedPart::optimizer : ExposedPart::compute;
}

// When each stream is ready next.
class Clocks {
 public:
  using Times = std::array<double, kReady>;

  void wait(Ready stream, Ready other) { at(stream) = std::max(at(stream), at(other)); }
  void set(Ready stream, Ready other) { at(stream) = at(other); }
  void spend(Ready stream, double seconds) { at(stream) += seconds; }
  void run(Ready stream, std::size_t /*index*/, double seconds) { spend(stream, seconds); }

  double latest() const { return *std::max_element(times_.begin(), times_.end()); }
  void wait_for_all() { times_.fill(latest()); }

  Times& times() { return times_; }
  double& at(Ready stream) { return times_[static_cast<std::size_t>(stream)]; }

 private:
  Times times_{};
};

// Puts one instruction on the clocks. Clocks have
//   wait(stream, other)         stream is ready no sooner than other
//   set(stream, other)          stream is ready when other is
//   spend(stream, seconds)      stream is busy with nothing of its own
//   run(stream, index, seconds) stream is busy with an instruction
class Schedule {
 public:
  using Instruction = program::Instruction;
  using Op = program::Op;
  using Phase = program::Phase;

  // `without`: those parts take no time; bits by ExposedPart.
  Schedule(const program::StepProgram& program, const StepCosts& costs, unsigned without = 0)
      : code_(program.code), costs_(costs), without_(without) {
    const bool gaps = (without & bit(ExposedPart::launch_gaps)) == 0 && !costs.one_stream;
    gap_ = gaps ? costs.kernel_gap_s : 0;
    issue_ = gaps ? costs.host_issue_s : 0;
  }

  static constexpr unsigned bit(ExposedPart part) { return 1U << static_cast<unsigned>(part); }

  template <class Clocks>
  void run(Clocks& clocks, std::size_t index, Phase phase) const {
    const Instruction& instruction = code_[index];
    const ExposedPart part = part_of(instruction, phase);
    const double seconds = seconds_of(index, phase);
    if (costs_.one_stream) return clocks.run(Ready::compute, index, seconds);
    switch (part) {
      case ExposedPart::data_parallel:
      case ExposedPart::tensor_parallel:
        return collective(clocks, index, seconds);
      case ExposedPart::host_copies:
        return copy(clocks, index, seconds, phase);
      default:
        return kernel(clocks, index, seconds, phase);
    }
  }

 private:
  double seconds_of(std::size_t index, Phase phase) const {
    return (without_ & bit(part_of(code_[index], phase))) != 0 ? 0 : costs_.seconds[index];
  }

  template <class Clocks>
  void kernel(Clocks& clocks, std::size_t index, double seconds, Phase phase) const {
    // Optimizers update many tensors with one kernel.
    const double launches = phase == Phase::step ? 0 : costs_.launches[index];
    clocks.spend(Ready::host, launches * issue_);
    // What adds a reduced partition follows its collective, beside the kernels of the next layer.
    const bool follows = code_[index].stream == program::Stream::communication;
    const Ready stream = follows ? Ready::communication : Ready::compute;
    clocks.wait(stream, Ready::host);
    clocks.spend(stream, launches * gap_);
    clocks.run(stream, index, seconds);
    if (index > 0 && is_beside_next(code_[index - 1])) {
      clocks.wait(Ready::compute, Ready::tensor);
      clocks.spend(Ready::host, seconds_of(index - 1, phase));
    }
  }

  static bool is_beside_next(const Instruction& instruction) {
    return instruction.stream == program::Stream::tensor;
  }

  template <class Clocks>
  void collective(Clocks& clocks, std::size_t index, double seconds) const {
    const Instruction& instruction = code_[index];
    // Where the host sets the pace, it stands still for the time of a tensor-parallel collective: steps of
    // vtrain_runs.csv that wait for their host take longer by it (micro-batch 1, tp 1 to 8). Issuing costs
    // nothing.
    if (is_beside_next(instruction)) {
      clocks.set(Ready::tensor, Ready::compute);
      clocks.run(Ready::tensor, index, seconds);
      clocks.spend(Ready::compute, costs_.slowdown * seconds);
      return;
    }
    if (instruction.group != program::Group::data_parallel) {
      clocks.wait(Ready::compute, Ready::host);
      clocks.run(Ready::compute, index, seconds);
      clocks.spend(Ready::host, seconds);
      return;
    }
    if (instruction.stream == program::Stream::compute) {
      clocks.wait(Ready::compute, Ready::host);
      clocks.wait(Ready::compute, Ready::communication);
      clocks.run(Ready::compute, index, seconds);
      clocks.wait(Ready::communication, Ready::compute);
      return;
    }
    clocks.wait(Ready::communication, Ready::host);
    clocks.wait(Ready::communication, Ready::compute);
    if (instruction.op != Op::all_gather) {
      clocks.run(Ready::communication, index, seconds);
      clocks.spend(Ready::compute, costs_.slowdown * seconds);
      return;
    }
    // Issued ahead, the kernels that follow need the gather before it; otherwise this one.
    const bool ahead = instruction.operands[1].layer_offset != 0;
    clocks.wait(Ready::communication, Ready::copies);
    if (ahead) clocks.wait(Ready::compute, Ready::gathered);
    clocks.run(Ready::communication, index, seconds);
    clocks.set(Ready::gathered, Ready::communication);
    if (ahead) {
      clocks.spend(Ready::compute, costs_.slowdown * seconds);
    } else {
      clocks.wait(Ready::compute, Ready::communication);
    }
  }

  template <class Clocks>
  void copy(Clocks& clocks, std::size_t index, double seconds, Phase phase) const {
    if (code_[index].stream == program::Stream::compute) {
      clocks.wait(Ready::compute, Ready::host);
      return clocks.run(Ready::compute, index, seconds);
    }
    clocks.wait(Ready::copies, Ready::compute);
    if (code_[index].op == Op::accumulate_host) clocks.wait(Ready::copies, Ready::communication);
    clocks.run(Ready::copies, index, seconds);
    if (phase == Phase::step) clocks.wait(Ready::compute, Ready::copies);
  }

  const std::vector<Instruction>& code_;
  const StepCosts& costs_;
  unsigned without_ = 0;
  double gap_ = 0, issue_ = 0;
};

}  // namespace zeroplan::predict
