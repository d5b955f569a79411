#pragma once

#include "planner/describe/cluster.hpp"
#include "planner/predict/kernels.hpp"
#include "planner/program/step_program.hpp"

// How long a step takes, read from its program in (max, +) algebra: a piece of program says how long after
// each stream was ready it leaves each stream ready; pieces in sequence are a matrix product, repeats a
// power, so no layer is walked twice.
namespace zeroplan::predict {

struct StepTime {
  double seconds = 0;                // of the whole step
  double compute_seconds = 0;        // kernels alone, one after the other
  double data_parallel_seconds = 0;  // collectives alone
  double tensor_parallel_seconds = 0;
  double host_copy_seconds = 0;
  double optimizer_seconds = 0;  // kernels of the step phase, in compute_seconds too
};

// All zero where the rates are not known.
StepTime read_time(const program::StepProgram& program, const describe::Cluster& cluster,
                   const KernelRates& rates);

}  // namespace zeroplan::predict
