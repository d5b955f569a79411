#include "planner/solve/strategies.hpp"

#include <utility>

#include "planner/solve/changes.hpp"

namespace zeroplan::solve {
namespace {

using describe::Model;
using describe::Offload;
using describe::PlanOptions;
using describe::ResolvedPlan;

struct Maker {
  const Model& model;
  const std::string& hardware;
  PlanOptions base;  // devices fixed, nothing that a strategy is about
  const ResolvedPlan& resolved;

  PlanOptions with(int zero_stage, std::int64_t tensor_parallel) const {
    PlanOptions options = with_tensor_parallel(base, resolved, tensor_parallel);
    options.zero = zero_stage;
    return options;
  }

  Strategy make(std::string name, PlanOptions options) const {
    Strategy strategy{std::move(name), std::move(options), {}, {}, ""};
    try {
      strategy.resolved = describe::resolve_plan(strategy.options, model, hardware);
      strategy.prediction = predict::predict(model, strategy.resolved->plan, strategy.resolved->cluster);
    } catch (const ConfigurationError& error) {
      strategy.not_possible = error.problems().front().text();
    }
    return strategy;
  }

  Strategy model_parallel() const {
    std::optional<Strategy> last;
    Strategy refused;
    for (std::int64_t degree = 2; degree <= resolved.plan.devices(); degree *= 2) {
      Strategy strategy = make("MP", with(0, degree));
      if (!strategy.prediction) {
        if (refused.name.empty()) refused = std::move(strategy);
        continue;
      }
      last = std::move(strategy);
      if (last->prediction->fits()) break;
    }
    if (last) return std::move(*last);
    if (refused.name.empty()) return {"MP", base, {}, {}, "needs 2 devices or more"};
    return refused;
  }

  Strategy partitioned_activations(std::int64_t degree, bool to_host) const {
    PlanOptions options = with(2, degree);
    options.recompute = describe::Recompute::full;
    options.partition_activations = true;
    if (to_host) options.offload_activations = true;
    return make(to_host ? "ZeRO-2 + MP + P_a+cpu" : "ZeRO-2 + MP + P_a", std::move(options));
  }

  Strategy offloaded(int stage, Offload offload, std::string name) const {
    PlanOptions options = with(stage, resolved.plan.tensor_parallel);
    options.offload = offload;
    return make(std::move(name), std::move(options));
  }
};

}  // namespace

std::vector<Strategy> strategies(const Model& model, const PlanOptions& options, const std::string& hardware,
                                 const ResolvedPlan& resolved) {
  PlanOptions base = with_fixed_devices(options, resolved);
  base.offload.reset();
  base.partition_activations.reset();
  base.offload_activations.reset();
  const Maker maker{model, hardware, std::move(base), resolved};
  const std::int64_t tensor_parallel = resolved.plan.tensor_parallel;

  std::vector<Strategy> result;
  result.push_back(maker.make("DP", maker.with(0, 1)));
  result.push_back(maker.model_parallel());
  for (int stage = 1; stage <= 3; ++stage) {
    result.push_back(maker.make("ZeRO-" + std::to_string(stage), maker.with(stage, tensor_parallel)));
  }
  const std::int64_t model_degree = result[1].resolved ? result[1].resolved->plan.tensor_parallel : 2;
  const std::int64_t degree = tensor_parallel > 1 ? tensor_parallel : model_degree;
  for (const bool to_host : {false, true}) result.push_back(maker.partitioned_activations(degree, to_host));
  result.push_back(maker.offloaded(2, Offload::optimizer, "ZeRO-2 + offload"));
  result.push_back(maker.offloaded(3, Offload::all, "ZeRO-3 + offload all"));
  return result;
}

}  // namespace zeroplan::solve
