#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/describe/plan.hpp"
#include "planner/predict/prediction.hpp"

namespace zeroplan::solve {

// One way to train the user's model on the user's devices.
struct Strategy {
  std::string name;  // "ZeRO-2"
  describe::Plan plan;
  std::optional<predict::Prediction> prediction;  // empty when the plan breaks a rule
  std::string not_possible;                       // the rule
};

// Plain data parallelism, model parallelism (the smallest power of two that fits, else the largest that is
// legal), ZeRO stages 1 to 3 with the user's tensor-parallel degree, P_a and P_a+cpu on top of model
// parallelism and ZeRO-2, and offload of the optimizer (ZeRO-2) and of everything (ZeRO-3): on the same
// devices, with the same global batch where it divides, and what else the user's own plan, `resolved`, says.
std::vector<Strategy> strategies(const describe::Model& model, const describe::ResolvedPlan& resolved);

}  // namespace zeroplan::solve
