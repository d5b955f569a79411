#include "planner/predict/time.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "planner/predict/delays.hpp"
#include "planner/predict/repetition.hpp"
#include "planner/predict/schedule.hpp"

namespace zeroplan::predict {

namespace {

using program::Instruction;
using program::Op;
using program::Phase;
using program::StepProgram;

class TimeReader {
 public:
  TimeReader(const StepProgram& program, const StepCosts& costs)
      : program_(program), costs_(costs), rows_(program), schedule_(program, costs, rows_) {}

  SectionTime read(std::size_t begin, std::size_t end) {
    section_.delays.reserve();
    phase_ = phase_at(program_, begin);
    for (std::size_t i = begin; i < end; ++i) one(i);
    return std::move(section_);
  }

 private:
  void one(std::size_t index) {
    const Instruction& instruction = program_.code[index];
    switch (instruction.op) {
      case Op::phase:
        phase_ = static_cast<Phase>(instruction.dims[0]);
        break;
      case Op::wait_for_all:
        section_.delays.wait_for_all();
        break;
      case Op::repeat:
        if (++depth_ == kDeepestRepeat) throw std::logic_error("read_time: repeats nested too deep");
        section_.delays.repeat(instruction.dims[0]);
        times_[depth_] = times_[depth_ - 1] * static_cast<double>(instruction.dims[0]);
        break;
      case Op::end_repeat:
        section_.delays.end_repeat();
        --depth_;
        break;
      default:
        if (!program::is_executed(instruction.op)) break;
        add_alone(index);
        schedule_.run(section_.delays, index, phase_);
    }
  }

  void add_alone(std::size_t index) {
    const auto part = static_cast<std::size_t>(part_of(program_, program_.code[index], phase_));
    section_.alone.busy[part] += times_[depth_] * costs_.busy_of(index);
    section_.alone.waiting[part] += times_[depth_] * costs_.waiting_of(index);
  }

  const StepProgram& program_;
  const StepCosts& costs_;
  Rows rows_;
  Schedule schedule_;
  Phase phase_ = Phase::setup;
  std::array<double, kDeepestRepeat> times_{1};
  std::size_t depth_ = 0;
  SectionTime section_;
};

// What the step is faster by when parts take no time, one after the other. Kernels are on one stream, or beside it only
// where they add what a collective brought.
std::array<double, kExposedParts> exposed_of(const Readings& seconds, double optimizer) {
  std::array<double, kExposedParts> exposed{};
  for (std::size_t i = 0; i < kLeftOut.size(); ++i) {
    exposed[static_cast<std::size_t>(kLeftOut[i])] = seconds[i] - seconds[i + 1];
  }
  const double updates = std::min(optimizer, seconds.back());
  exposed[static_cast<std::size_t>(ExposedPart::optimizer)] = updates;
  exposed[static_cast<std::size_t>(ExposedPart::compute)] = seconds.back() - updates;
  return exposed;
}

std::optional<StepCosts> known_costs(const StepProgram& program, const describe::Cluster& cluster,
                                     const KernelRates& rates) {
  if (program.states_only) return std::nullopt;
  return step_costs(program, cluster, rates);
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
  return step_time_of(read_time(program, costs, 0, program.code.size())).seconds;
}

SectionTime read_time(const StepProgram& program, const StepCosts& costs, std::size_t begin,
                      std::size_t end) {
  return TimeReader(program, costs).read(begin, end);
}

bool SecondsAlone::is_known() const { return !std::isnan(std::accumulate(busy.begin(), busy.end(), 0.0)); }

StepTime step_time_of(const SecondsAlone& alone, const Readings& seconds) {
  if (!alone.is_known() || seconds.front() == 0) return {};
  const auto busy = [&](ExposedPart part) { return alone.busy[static_cast<std::size_t>(part)]; };
  StepTime time;
  time.seconds = seconds.front();
  time.optimizer_seconds = busy(ExposedPart::optimizer);
  time.compute_seconds = busy(ExposedPart::compute) + time.optimizer_seconds;
  time.data_parallel_seconds = busy(ExposedPart::data_parallel);
  time.tensor_parallel_seconds = busy(ExposedPart::tensor_parallel);
  time.host_copy_seconds = busy(ExposedPart::host_copies);
  time.waiting_by_part = alone.waiting;
  time.waiting_seconds = std::accumulate(alone.waiting.begin(), alone.waiting.end(), 0.0);
  time.exposed_seconds = exposed_of(seconds, time.optimizer_seconds);
  return time;
}

StepTime step_time_of(const SectionTime& step) {
  if (!step.alone.is_known()) return {};
  Walk walk;
  walk.run(step.delays);
  const Readings seconds = walk.latest();
  return step_time_of(step.alone, seconds);
}

StepTime read_time(const StepProgram& program, const describe::Cluster& cluster, const KernelRates& rates) {
  const std::optional<StepCosts> costs = known_costs(program, cluster, rates);
  return costs ? step_time_of(read_time(program, *costs, 0, program.code.size())) : StepTime{};
}

}  // namespace zeroplan::predict
