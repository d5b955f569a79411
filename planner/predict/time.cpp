#include "planner/predict/time.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "planner/predict/delays.hpp"
#include "planner/predict/repetition.hpp"
#include "planner/predict/schedule.hpp"

namespace zeroplan::predict {

namespace {

using program::Instruction;
using program::Op;
using program::Phase;
using program::StepProgram;

// Seconds of each part alone, one instruction after the other.
using OfParts = std::array<double, kExposedParts>;

struct Pass {
  double seconds = 0;
  OfParts busy{};
  OfParts waiting{};  // for other ranks, not in busy
};

// Readings of a program, each with some parts taking no time.
class Timeline {
 public:
  Timeline(const StepProgram& program, const StepCosts& costs)
      : program_(program),
        costs_(costs),
        rows_(program),
        schedule_(program, costs, rows_),
        clocks_(rows_.count()) {}

  // `without`: bits by ExposedPart.
  Pass read(unsigned without) {
    schedule_.leave_out(without);
    clocks_.start();
    pass_ = {};
    for (std::size_t i = 0; i < program_.code.size(); ++i) one(i);
    pass_.seconds = clocks_.latest();
    return pass_;
  }

 private:
  Delays& delays() { return delays_[depth_]; }

  void one(std::size_t index) {
    const Instruction& instruction = program_.code[index];
    switch (instruction.op) {
      case Op::phase:
        phase_ = static_cast<Phase>(instruction.dims[0]);
        break;
      case Op::wait_for_all:
        clocks_.wait_for_all();  // never inside a repeat
        break;
      case Op::repeat:
        if (++depth_ == kDeepestRepeat) throw std::logic_error("read_time: repeats nested too deep");
        delays().clear(rows_.count());
        times_[depth_] = times_[depth_ - 1] * static_cast<double>(instruction.dims[0]);
        counts_[depth_] = instruction.dims[0];
        break;
      case Op::end_repeat: {
        Delays& body = delays();
        const std::int64_t count = counts_[depth_--];
        if (depth_ == 0) {
          body.advance(clocks_, count);
        } else {
          delays().append(body.power(count));
        }
        break;
      }
      default:
        if (!program::is_executed(instruction.op)) break;
        add_alone(index);
        if (depth_ == 0) {
          schedule_.run(clocks_, index, phase_);
        } else {
          schedule_.run(delays(), index, phase_);
        }
    }
  }

  void add_alone(std::size_t index) {
    const auto part = static_cast<std::size_t>(part_of(program_, program_.code[index], phase_));
    pass_.busy[part] += times_[depth_] * costs_.busy_of(index);
    pass_.waiting[part] += times_[depth_] * costs_.waiting_of(index);
  }

  const StepProgram& program_;
  const StepCosts& costs_;
  Rows rows_;
  Schedule schedule_;
  Phase phase_ = Phase::setup;
  Clocks clocks_;                              // outside repeats
  std::array<Delays, kDeepestRepeat> delays_;  // of a repeat's body, from its start
  std::array<double, kDeepestRepeat> times_{1};
  std::array<std::int64_t, kDeepestRepeat> counts_{1};
  std::size_t depth_ = 0;
  Pass pass_;
};

// What the step is faster by when parts take no time, one after the other.
std::array<double, kExposedParts> read_exposed(Timeline& timeline, const Pass& whole) {
  std::array<double, kExposedParts> exposed{};
  unsigned without = 0;
  double before = whole.seconds;
  for (const ExposedPart part : {ExposedPart::launch_gaps, ExposedPart::host_copies,
                                 ExposedPart::data_parallel, ExposedPart::tensor_parallel}) {
    const auto index = static_cast<std::size_t>(part);
    without |= Schedule::bit(part);
    if (part != ExposedPart::launch_gaps && whole.busy[index] + whole.waiting[index] == 0) continue;
    const double after = timeline.read(without).seconds;
    exposed[index] = before - after;
    before = after;
  }
  // Kernels are on one stream, or beside it only where they add what a collective brought.
  const auto optimizer = static_cast<std::size_t>(ExposedPart::optimizer);
  exposed[optimizer] = std::min(whole.busy[optimizer], before);
  exposed[static_cast<std::size_t>(ExposedPart::compute)] = before - exposed[optimizer];
  return exposed;
}

std::optional<StepCosts> known_costs(const StepProgram& program, const describe::Cluster& cluster,
                                     const KernelRates& rates) {
  if (program.states_only) return std::nullopt;
  return step_costs(program, cluster, rates);
}

// Links that are not described take no number of seconds, which no maximum passes on but every sum does:
// nothing then.
Pass read_whole(Timeline& timeline) {
  const Pass whole = timeline.read(0);
  return std::isnan(std::accumulate(whole.busy.begin(), whole.busy.end(), 0.0)) ? Pass{} : whole;
}

}  // namespace

std::string_view name_of(ExposedPart part) {
  constexpr std::array<std::string_view, kExposedParts> kNames{
      "compute", "optimizer", "data_parallel", "tensor_parallel", "host_copies", "launch_gaps"};
  return kNames[static_cast<std::size_t>(part)];
}

double read_step_seconds(const StepProgram& program, const describe::Cluster& cluster,
                         const KernelRates& rates) {
  const std::optional<StepCosts> costs = known_costs(program, cluster, rates);
  return costs ? read_step_seconds(program, *costs) : 0;
}

double read_step_seconds(const StepProgram& program, const StepCosts& costs) {
  Timeline timeline(program, costs);
  return read_whole(timeline).seconds;
}

StepTime read_time(const StepProgram& program, const describe::Cluster& cluster, const KernelRates& rates) {
  const std::optional<StepCosts> costs = known_costs(program, cluster, rates);
  if (!costs) return {};
  Timeline timeline(program, *costs);
  const Pass whole = read_whole(timeline);
  if (whole.seconds == 0) return {};
  const auto busy = [&](ExposedPart part) { return whole.busy[static_cast<std::size_t>(part)]; };
  StepTime time;
  time.seconds = whole.seconds;
  time.optimizer_seconds = busy(ExposedPart::optimizer);
  time.compute_seconds = busy(ExposedPart::compute) + time.optimizer_seconds;
  time.data_parallel_seconds = busy(ExposedPart::data_parallel);
  time.tensor_parallel_seconds = busy(ExposedPart::tensor_parallel);
  time.host_copy_seconds = busy(ExposedPart::host_copies);
  time.waiting_by_part = whole.waiting;
  time.waiting_seconds = std::accumulate(whole.waiting.begin(), whole.waiting.end(), 0.0);
  time.exposed_seconds = read_exposed(timeline, whole);
  return time;
}

}  // namespace zeroplan::predict
