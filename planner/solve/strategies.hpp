#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/describe/plan/plan.hpp"
#include "planner/predict/prediction.hpp"

namespace zeroplan::solve {

// One way to train the user's model on the user's devices.
struct Strategy {
  std::string name;                                // "ZeRO-2"
  describe::PlanOptions options;                   // what asks for it: the user's, changed
  std::optional<describe::ResolvedPlan> resolved;  // of `options`; empty when the plan breaks a rule
  std::optional<predict::Prediction> prediction;   // of `resolved`
  std::string not_possible;                        // the rule
};

// Plain data parallelism, model parallelism, ZeRO stages 1 to 3 with the user's tensor-parallel degree, P_a
// and P_a+cpu on top of model parallelism and ZeRO-2, and offload of the optimizer (ZeRO-2) and of everything
// (ZeRO-3): on the same devices, with the same global batch where it divides. Each is resolved from options,
// so what the user left open is derived for it alone, as `fit` would with the same options.
//
// The tensor-parallel degree of model parallelism is the user's where it is above 1. Else it is, of the
// powers of two inside a node and for each strategy by itself, the fastest that fits, the smallest where
// times are not known, and the one with the lowest peak where none fits.
//
// Throws ConfigurationError where the user's own options are not legal.
std::vector<Strategy> strategies(const describe::Model& model, const describe::PlanOptions& options,
                                 const std::string& hardware);

// The user's plan at stages 0 to 3 of ZeRO, with all else as it is.
std::vector<Strategy> stages(const describe::Model& model, const describe::PlanOptions& options,
                             const std::string& hardware);

// The fastest of those that fit, by tokens per second, the first of equals; null where none fits or no time
// is known.
const Strategy* fastest_that_fits(const std::vector<Strategy>& strategies);

}  // namespace zeroplan::solve
