#pragma once

#include <string>
#include <vector>

#include "planner/describe/plan.hpp"
#include "planner/predict/prediction.hpp"

namespace zeroplan::solve {

// A change of the plan that makes it fit.
struct Suggestion {
  describe::PlanOptions options;  // the user's, changed
  std::string what;               // "ZeRO stage 2 instead of 1"
  std::string cost;  // "no more traffic", "1.5x the data-parallel traffic", "a third more compute" ...
  Bytes peak_bytes = 0;
  Bytes capacity_bytes = 0;
};

// For a plan that does not fit: the cheapest single changes that fit, cheapest first (at most `limit`); when
// no single change is enough, the cheapest combination; empty when nothing tried helps. Every candidate is
// resolved, compiled and read.
std::vector<Suggestion> suggest(const describe::Model& model, const describe::PlanOptions& options,
                                const std::string& hardware, std::size_t limit = 3);

}  // namespace zeroplan::solve
