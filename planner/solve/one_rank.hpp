#pragma once

#include "planner/describe/plan/plan.hpp"

// What a run of several ranks is held against: the same training on one rank.
namespace zeroplan::solve {

// The plan of one rank that accumulates the global batch of `plan`, by the executor's own way (engine native), with
// every state and activation in its memory.
describe::Plan one_rank_plan(const describe::Plan& plan);

// By how much of its size a figure of a step may differ by rounding alone (docs/validate.md).
struct RoundingTolerance {
  double loss = 0, norm = 0;
};

// Between a run of `plan` and one of one_rank_plan(plan):
//
//   the same bits    fp32, no tensor parallelism, either one data-parallel rank or no accumulation, and an
//                    engine that adds a tied table's two parts apart (docs/architecture.md, "Bits")
//   otherwise        rounding of the type in another order
RoundingTolerance one_rank_tolerance(const describe::Model& model, const describe::Plan& plan);

}  // namespace zeroplan::solve
