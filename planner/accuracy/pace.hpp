#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "planner/accuracy/modelled_run.hpp"
#include "planner/describe/plan/engine.hpp"
#include "planner/program/step_program.hpp"

// The constants of pace, which scripts/fit_times fits to measured runs, and how well they foretell runs that
// they were not fitted to.
//
// The shipped constants (planner/program/engines, hardware_profiles/architectures) are fitted to every run, so the
// errors of these runs are in-sample. To know what is left on others, configurations are dealt to folds, the
// constants are fitted anew without each fold, and its runs are predicted with those.
namespace zeroplan::accuracy {

inline constexpr std::size_t kFolds = 3;

struct PaceConstant {
  std::string name;
  std::vector<std::string> engines;      // that share it; none of what an architecture sustains
  std::string architecture;              // of whose products' rate it is the sustained fraction
  double describe::Engine::*field{};     // null of an architecture's
  double first = 0, most = 0;            // where a fit starts, and the largest value
  std::array<double, kFolds> without{};  // the value fitted to the runs that are not in each fold
};

// Those of planner/accuracy/pace.yaml, in its order.
const std::vector<PaceConstant>& pace_constants();
using PaceValues = std::vector<double>;  // one for each of them

// Whether the pace of a run's plan depends on a constant.
bool applies(const PaceConstant& constant, const ModelledRun& run);

// The values that the run is predicted with; a constant that does not apply to it has its first.
PaceValues shipped_pace(const ModelledRun& run);

// Seconds of a step with `values` in place of the shipped constants; 0 where they are not known. `program` is
// what the run's plan compiles to, which does not depend on them.
double step_seconds(const ModelledRun& run, const program::StepProgram& program, const PaceValues& values);

// 0 to kFolds - 1, the same for all runs of one configuration: the shape of a layer, the GPU, how many of them a
// node has, and the engine. Runs that differ in the number of layers or nodes, the batch or the parallel
// degrees alone are neighbours, and on the same side.
std::size_t fold_of(const ModelledRun& run);

// What scripts/fit_times prints for the runs that are not in `fold`.
PaceValues pace_without(std::size_t fold);

}  // namespace zeroplan::accuracy
