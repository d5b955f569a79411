#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/describe/plan/plan.hpp"
#include "planner/solve/evaluator.hpp"

namespace zeroplan::solve {

// The user's plan with another micro-batch, recomputation or number of nodes.
struct WhatIf {
  describe::Recompute recompute = describe::Recompute::none;
  std::int64_t nodes = 1, gpus = 1;
  std::int64_t micro_batch = 1;
  describe::PlanOptions options;         // that ask for it
  std::optional<Evaluation> evaluation;  // empty where the plan breaks a rule
};

// Micro-batches and nodes by powers of two around the user's, each without and with full recomputation. What the options say
// of global batches is left open, so that accumulation stays as it is. Rows of a recomputation stand together, by nodes, then by
// micro-batch. Throws ConfigurationError where the user's own options are not legal.
std::vector<WhatIf> what_if(const describe::Model& model, const describe::PlanOptions& options,
                            const std::string& hardware);

}  // namespace zeroplan::solve
