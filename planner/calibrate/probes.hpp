#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/describe/machine/calibration.hpp"
#include "planner/describe/plan/plan.hpp"
#include "planner/program/step_program.hpp"

// What a machine is measured with: step programs whose instructions are timed where they run.
namespace zeroplan::calibrate {

struct Probe {
  std::string what;  // "bf16 products", for people who wait
  program::StepProgram program;
  std::int64_t sequence = 1, micro_batch = 1, gradient_accumulation = 1, vocabulary = 2;
  bool is_grid = false;  // of products or attention over sizes; otherwise a model's step, for all else
};

// Over which sizes is measured.
struct ProbeSizes {
  bool quick = false;  // few sizes, small ones
  // Of a GPU: what fills its multiprocessors and passes its caches. The largest probe takes 10 GiB, 1 GiB when quick.
  bool of_gpu = false;
};

// The probes for `devices` ranks that work at once, as rank `rank` runs them: training steps of small models
// in which every kernel of `precision` occurs, then grids over the sizes of their products and attention.
std::vector<Probe> kernel_probes(describe::Precision precision, const program::Group& ranks,
                                 ProbeSizes chosen);

// Collectives over vectors that double in size, from first_vector_bytes() on; needs two ranks.
Probe collective_probe(describe::Precision precision, const program::Group& ranks, ProbeSizes chosen);

// Matrix products of some tens of milliseconds, each with a small all-reduce behind it: how long ranks wait
// for each other. Needs two ranks.
Probe skew_probe(const program::Group& ranks, ProbeSizes chosen);

}  // namespace zeroplan::calibrate
