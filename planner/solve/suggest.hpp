#pragma once

#include <string>
#include <vector>

#include "planner/describe/plan/plan.hpp"
#include "planner/predict/prediction.hpp"

namespace zeroplan::solve {

// A change of the plan that makes it fit, or may.
struct Suggestion {
  describe::PlanOptions options;  // the user's, changed
  std::string what;               // "ZeRO stage 2"
  std::string cost;  // "no more traffic", "1.5x the data-parallel traffic", "a third more compute" ...
  Bytes peak_bytes = 0;
  Bytes capacity_bytes = 0;
  Bytes host_bytes_per_node = 0;          // states and checkpoints that it keeps in host memory; 0: none
  std::vector<predict::Missing> missing;  // what a yes still needs; empty: it fits
};

// For a plan that does not fit: the cheapest single changes that fit, or of which it cannot be said for want
// of what the machine's description leaves out, cheapest first (at most `limit`); when no single change is a
// yes, also a combination of which no part can be left out; empty when nothing tried helps. Of a model
// without a shape nothing can be said to fit: there it is the changes after which the states do.
// Every candidate is compiled and read, and what is returned was resolved from its options. Throws
// ConfigurationError when the user's own plan is not legal.
std::vector<Suggestion> suggest(const describe::Model& model, const describe::PlanOptions& options,
                                const std::string& hardware, std::size_t limit = 3);

}  // namespace zeroplan::solve
