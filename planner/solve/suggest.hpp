#pragma once

#include <string>
#include <vector>

#include "planner/describe/plan.hpp"
#include "planner/predict/prediction.hpp"

namespace zeroplan::solve {

// A change of the plan that makes it fit.
struct Suggestion {
  describe::PlanOptions options;  // the user's, changed
  std::string what;               // "ZeRO stage 2"
  std::string cost;  // "no more traffic", "1.5x the data-parallel traffic", "a third more compute" ...
  Bytes peak_bytes = 0;
  Bytes capacity_bytes = 0;
};

// For a plan that does not fit: the cheapest single changes that fit, cheapest first (at most `limit`); when
// no single change is enough, a combination of which no part can be left out; empty when nothing tried helps.
// Every candidate is compiled and read, and what is returned was resolved from its options. Throws
// ConfigurationError when the user's own plan is not legal.
std::vector<Suggestion> suggest(const describe::Model& model, const describe::PlanOptions& options,
                                const std::string& hardware, std::size_t limit = 3);

}  // namespace zeroplan::solve
