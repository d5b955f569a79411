#pragma once

#include <optional>
#include <vector>

#include "planner/describe/machine/cluster.hpp"
#include "planner/instructions/table.hpp"
#include "planner/predict/kernels.hpp"
#include "planner/predict/time.hpp"
#include "planner/program/step_program.hpp"

namespace zeroplan::predict {

// What each instruction of a program costs by itself, by its index.
struct StepCosts {
  std::vector<double> seconds;   // 0 for structure and memory
  std::vector<double> waiting;   // of seconds: for other ranks; empty where ranks are taken to be even
  std::vector<double> launches;  // kernels of the engine for it, each with an issue and a gap
  double kernel_gap_s = 0, host_issue_s = 0;
  double slowdown = 0;      // of kernels by a collective beside them: their loss over the collective's time
  bool one_stream = false;  // nothing runs beside anything else
  // A part during which the host that issues stands still. Tensor-parallel collectives: steps of vtrain_runs.csv that
  // wait for their host take longer by them (micro-batch 1, tp 1 to 8).
  static constexpr ExposedPart kHoldsHost = ExposedPart::tensor_parallel;

  double waiting_of(std::size_t index) const { return waiting.empty() ? 0 : waiting[index]; }
  // Without waiting for other ranks.
  double busy_of(std::size_t index) const { return seconds[index] - waiting_of(index); }
};

// Empty where the rates are not known; not a number where links that are used are not described.
std::optional<StepCosts> step_costs(const program::StepProgram& program, const describe::Cluster& cluster,
                                    const KernelRates& rates);

// Whose time an instruction is.
inline ExposedPart part_of(const program::StepProgram& program, const program::Instruction& instruction,
                           program::Phase phase) {
  if (is_collective(instruction.op)) {
    const bool is_tensor = program.group_of(instruction).kind == program::GroupKind::tensor_parallel;
    return is_tensor ? ExposedPart::tensor_parallel : ExposedPart::data_parallel;
  }
  if (is_host_copy(instruction.op)) return ExposedPart::host_copies;
  return phase == program::Phase::step ? ExposedPart::optimizer : ExposedPart::compute;
}

}  // namespace zeroplan::predict
