#include "planner/solve/what_if.hpp"

#include <algorithm>
#include <utility>

#include "planner/error.hpp"

namespace zeroplan::solve {

namespace {

constexpr std::int64_t kLargestMicroBatch = 32;

// A half, one, two and four times as many; at least one.
std::vector<std::int64_t> around(std::int64_t nodes) {
  std::vector<std::int64_t> counts;
  for (const std::int64_t count : {nodes / 2, nodes, 2 * nodes, 4 * nodes}) {
    if (count >= 1) counts.push_back(count);
  }
  return counts;
}

}  // namespace

std::vector<WhatIf> what_if(const describe::Model& model, const describe::PlanOptions& options,
                            const std::string& hardware) {
  const describe::ResolvedPlan user = describe::resolve_plan(options, model, hardware);
  const std::int64_t largest = std::max(kLargestMicroBatch, user.plan.micro_batch);
  std::vector<WhatIf> cells;
  for (const describe::Recompute recompute : {describe::Recompute::none, describe::Recompute::full}) {
    describe::PlanOptions changed = options;
    changed.origins.clear();
    changed.recompute = recompute;
    changed.gpus.reset();  // follow from the nodes
    changed.dp.reset();
    changed.global_batch.reset();
    changed.nodes = user.cluster.nodes;
    changed.grad_accum = user.plan.gradient_accumulation;
    std::optional<Evaluator> evaluator;
    try {
      evaluator.emplace(model, changed, hardware);
    } catch (const ConfigurationError&) {
      continue;  // as P_a without full recomputation
    }
    for (const std::int64_t nodes : around(user.cluster.nodes)) {
      for (std::int64_t micro_batch = 1; micro_batch <= largest; micro_batch *= 2) {
        const Neighbour neighbour{user.plan.zero_stage, nodes, user.plan.tensor_parallel, micro_batch,
                                  user.plan.gradient_accumulation};
        WhatIf cell{recompute,
                    nodes,
                    nodes * user.cluster.devices_per_node,
                    micro_batch,
                    evaluator->options_for(neighbour),
                    evaluator->evaluate(neighbour)};
        cells.push_back(std::move(cell));
      }
    }
  }
  return cells;
}

}  // namespace zeroplan::solve
