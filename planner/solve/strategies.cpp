#include "planner/solve/strategies.hpp"

#include <utility>

#include "planner/solve/changes.hpp"

namespace zeroplan::solve {
namespace {

using describe::Offload;
using describe::Plan;

struct Maker {
  const describe::Model& model;
  const describe::Cluster& cluster;
  Plan base;  // the user's, without what a strategy is about

  Plan with(int zero_stage, std::int64_t tensor_parallel) const {
    Plan plan = with_tensor_parallel(base, tensor_parallel);
    plan.zero_stage = zero_stage;
    return plan;
  }

  Strategy make(std::string name, Plan plan) const {
    Strategy strategy{std::move(name), std::move(plan), {}, ""};
    Problems problems;
    describe::check_plan(strategy.plan, model, problems);
    if (problems.empty()) {
      strategy.prediction = predict::predict(model, strategy.plan, cluster);
    } else {
      strategy.not_possible = problems.list().front().text();
    }
    return strategy;
  }

  Strategy model_parallel() const {
    Strategy best{"MP", base, {}, "it needs an even number of devices"};
    for (std::int64_t degree = 2; degree <= base.devices(); degree *= 2) {
      if (base.devices() % degree != 0) continue;
      Strategy strategy = make("MP", with(0, degree));
      const bool is_first = degree == 2;
      if (!strategy.prediction && !is_first) continue;
      best = std::move(strategy);
      if (best.prediction && best.prediction->fits()) break;
    }
    return best;
  }

  // On top of `model_parallel`, the strategy of plain model parallelism.
  Strategy partitioned_activations(const Strategy& model_parallel, bool to_host) const {
    std::string name = to_host ? "ZeRO-2 + MP + P_a+cpu" : "ZeRO-2 + MP + P_a";
    const std::int64_t degree =
        base.tensor_parallel > 1 ? base.tensor_parallel : model_parallel.plan.tensor_parallel;
    if (degree == 1) return {std::move(name), base, {}, model_parallel.not_possible};
    Plan plan = with(2, degree);
    plan.recompute = describe::Recompute::full;
    plan.partition_activations = true;
    plan.offload_activations = to_host;
    return make(std::move(name), std::move(plan));
  }

  Strategy offloaded(int stage, Offload offload, std::string name) const {
    Plan plan = with(stage, base.tensor_parallel);
    plan.offload = offload;
    return make(std::move(name), std::move(plan));
  }
};

}  // namespace

std::vector<Strategy> strategies(const describe::Model& model, const describe::ResolvedPlan& resolved) {
  Plan base = resolved.plan;
  base.offload = Offload::none;
  base.partition_activations = false;
  base.offload_activations = false;
  const Maker maker{model, resolved.cluster, std::move(base)};

  std::vector<Strategy> result;
  result.push_back(maker.make("DP", maker.with(0, 1)));
  result.push_back(maker.model_parallel());
  for (int stage = 1; stage <= 3; ++stage) {
    result.push_back(
        maker.make("ZeRO-" + std::to_string(stage), maker.with(stage, resolved.plan.tensor_parallel)));
  }
  for (const bool to_host : {false, true})
    result.push_back(maker.partitioned_activations(result[1], to_host));
  result.push_back(maker.offloaded(2, Offload::optimizer, "ZeRO-2 + offload"));
  result.push_back(maker.offloaded(3, Offload::all, "ZeRO-3 + offload all"));
  return result;
}

}  // namespace zeroplan::solve
