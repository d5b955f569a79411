#pragma once

#include <array>
#include <cstddef>

#include "planner/accuracy/modelled_run.hpp"
#include "planner/describe/plan/engine.hpp"
#include "planner/program/step_program.hpp"

// The constants of pace, which scripts/fit_times fits to measured runs, and how well they foretell runs that
// they were not fitted to.
//
// The shipped constants (planner/program/engines, planner/predict/kernels.cpp) are fitted to every run, so the
// errors of these runs are in-sample. To know what is left on others, configurations are dealt to folds, the
// constants are fitted anew without each fold, and its runs are predicted with those.
namespace zeroplan::accuracy {

// `group`: engines that share the constant, or an architecture.
struct PaceConstant {
  const char* group;
  const char* name;
  double describe::Engine::*field;  // null: what an architecture sustains of its products' rate
  double first, most;               // where a fit starts, and the largest value
};

inline constexpr std::size_t kPaceConstants = 11;
extern const std::array<PaceConstant, kPaceConstants> kPace;
using PaceValues = std::array<double, kPaceConstants>;

// Whether the pace of a run's plan depends on a constant.
bool applies(const PaceConstant& constant, const ModelledRun& run);

// Seconds of a step with `values` in place of the shipped constants; 0 where they are not known. `program` is
// what the run's plan compiles to, which does not depend on them.
double step_seconds(const ModelledRun& run, const program::StepProgram& program, const PaceValues& values);

inline constexpr std::size_t kFolds = 3;

// 0 to kFolds - 1, the same for all runs of one configuration: the shape of a layer, the GPU, how many of them a
// node has, and the engine. Runs that differ in the number of layers or nodes, the batch or the parallel
// degrees alone are neighbours, and on the same side.
std::size_t fold_of(const ModelledRun& run);

// What scripts/fit_times prints for the runs that are not in `fold`.
const PaceValues& pace_without(std::size_t fold);

}  // namespace zeroplan::accuracy
