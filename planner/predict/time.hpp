#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "planner/describe/machine/cluster.hpp"
#include "planner/predict/kernels.hpp"
#include "planner/program/step_program.hpp"

// How long a step takes, read from its program in (max, +) algebra (delays.hpp): a section says how long after each
// stream was ready it leaves each stream ready. Of a repeat only so many iterations are walked as differ.
namespace zeroplan::predict {

// What a step waits for. Each part is what the step would be faster if that took no time, taken away one
// after the other in the order launch gaps, host copies, data-parallel, tensor-parallel; what is left is
// kernels, of the optimizer (the step phase) and of the rest. So the parts add up to the step.
enum class ExposedPart : std::uint8_t {
  compute,
  optimizer,
  data_parallel,
  tensor_parallel,
  host_copies,
  launch_gaps,
};
inline constexpr std::size_t kExposedParts = 6;
std::string_view name_of(ExposedPart part);

struct StepTime {
  double seconds = 0;                // of the whole step; 0: not known
  double compute_seconds = 0;        // kernels alone, one after the other
  double data_parallel_seconds = 0;  // collectives alone, without waiting for other ranks
  double tensor_parallel_seconds = 0;
  double waiting_seconds = 0;  // of collectives beside that, one after the other
  double host_copy_seconds = 0;
  double optimizer_seconds = 0;  // kernels of the step phase, in compute_seconds too
  std::array<double, kExposedParts> exposed_seconds{};
  std::array<double, kExposedParts> waiting_by_part{};  // adds up to waiting_seconds

  bool is_known() const { return seconds > 0; }
  double exposed(ExposedPart part) const { return exposed_seconds[static_cast<std::size_t>(part)]; }
  double waiting(ExposedPart part) const { return waiting_by_part[static_cast<std::size_t>(part)]; }
};

// Returns the seconds of the whole step alone, for callers that compare many plans, or 0 if they are unknown.
double read_step_seconds(const program::StepProgram& program, const describe::Cluster& cluster,
                         const KernelRates& rates);

// The same of costs that are known.
struct StepCosts;
double read_step_seconds(const program::StepProgram& program, const StepCosts& costs);

// Of instructions [begin, end).
struct SectionTime;
SectionTime read_time(const program::StepProgram& program, const StepCosts& costs, std::size_t begin,
                      std::size_t end);
// Of a step that is this section. All zero where a link that it uses is not described.
StepTime step_time_of(const SectionTime& step);

// All zero where the rates are not known.
StepTime read_time(const program::StepProgram& program, const describe::Cluster& cluster,
                   const KernelRates& rates);

}  // namespace zeroplan::predict
