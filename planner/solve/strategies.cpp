#include "planner/solve/strategies.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "planner/solve/changes.hpp"

namespace zeroplan::solve {
namespace {

using describe::Offload;
using describe::Plan;
using describe::PlanOptions;

// Tokens per second of all devices; nothing where the time is not known.
std::optional<double> speed_of(const Strategy& strategy) {
  if (!strategy.prediction) return std::nullopt;
  const describe::ResolvedPlan& resolved = *strategy.resolved;
  const auto step = predict::training_step(*strategy.prediction, resolved.plan, resolved.cluster.device);
  if (!step) return std::nullopt;
  return static_cast<double>(step->tokens) / step->seconds;
}

// What a degree is chosen by, the larger the better.
struct Rank {
  int verdict = 0;  // impossible, a no, not a no, fits
  double preference = 0;

  bool operator>(const Rank& other) const {
    return verdict != other.verdict ? verdict > other.verdict : preference > other.preference;
  }
};

Rank rank_of(const Strategy& strategy) {
  if (!strategy.prediction) return {0, 0};
  const predict::Prediction& prediction = *strategy.prediction;
  if (prediction.verdict == predict::Verdict::does_not_fit) {
    return {1, -static_cast<double>(prediction.peak_bytes)};
  }
  // Without a time all are alike, and the first, the smallest degree, stays.
  return {prediction.fits() ? 3 : 2, speed_of(strategy).value_or(0)};
}

struct Maker {
  const describe::Model& model;
  const std::string& hardware;
  PlanOptions options;  // the user's
  describe::ResolvedPlan user;
  Plan base;  // the user's, without what a strategy is about

  Maker(const describe::Model& of_model, PlanOptions given, const std::string& on)
      : model(of_model),
        hardware(on),
        options(std::move(given)),
        user(describe::resolve_plan(options, model, hardware)),
        base(user.plan) {
    base.offload = Offload::none;
    base.partition_activations = false;
    base.offload_activations = false;
    options.origins.clear();  // a problem of a strategy is not where the user wrote a value
  }

  Plan with(int zero_stage, std::int64_t tensor_parallel) const {
    Plan plan = with_tensor_parallel(base, tensor_parallel);
    plan.zero_stage = zero_stage;
    if (zero_stage == 0) plan.shard = 0;
    if (zero_stage != 3) plan.secondary_shard = 0;
    return plan;
  }

  Strategy make(std::string name, const Plan& plan) const {
    Strategy strategy{std::move(name), options_for(plan, user.plan, options), {}, {}, ""};
    try {
      strategy.resolved = describe::resolve_plan(strategy.options, model, hardware);
      strategy.options = as_on_command_line(strategy.options, strategy.resolved->plan);
      strategy.prediction = predict::predict(model, strategy.resolved->plan, strategy.resolved->cluster);
    } catch (const ConfigurationError& error) {
      strategy.resolved.reset();
      strategy.not_possible = error.problems().front().text();
    }
    return strategy;
  }

  std::vector<std::int64_t> degrees() const {
    if (base.tensor_parallel > 1) return {base.tensor_parallel};
    std::vector<std::int64_t> result;
    const std::int64_t most = std::min(user.cluster.devices_per_node, base.devices());
    for (std::int64_t degree = 2; degree <= most; degree *= 2) {
      if (base.devices() % degree == 0) result.push_back(degree);
    }
    return result;
  }

  template <class MakePlan>
  Strategy model_parallel(const std::string& name, MakePlan plan_of) const {
    Strategy best{name, options, {}, {}, "it needs an even number of devices on a node"};
    bool is_first = true;
    for (const std::int64_t degree : degrees()) {
      Strategy strategy = make(name, plan_of(degree));
      if (is_first || rank_of(strategy) > rank_of(best)) best = std::move(strategy);
      is_first = false;
    }
    return best;
  }

  Strategy partitioned_activations(bool to_host) const {
    return model_parallel(to_host ? "ZeRO-2 + MP + P_a+cpu" : "ZeRO-2 + MP + P_a", [&](std::int64_t degree) {
      Plan plan = with(2, degree);
      plan.recompute = describe::Recompute::full;
      plan.partition_activations = true;
      plan.offload_activations = to_host;
      return plan;
    });
  }

  Strategy offloaded(int stage, Offload offload, std::string name) const {
    Plan plan = with(stage, base.tensor_parallel);
    plan.offload = offload;
    return make(std::move(name), plan);
  }
};

}  // namespace

std::vector<Strategy> stages(const describe::Model& model, const PlanOptions& options,
                             const std::string& hardware) {
  const Maker maker(model, options, hardware);
  std::vector<Strategy> result;
  for (int stage = 0; stage <= 3; ++stage) {
    Plan plan = maker.user.plan;
    plan.zero_stage = stage;
    if (stage == 0) plan.shard = 0;
    if (stage != 3) plan.secondary_shard = 0;
    result.push_back(maker.make("ZeRO-" + std::to_string(stage), plan));
  }
  return result;
}

std::vector<Strategy> strategies(const describe::Model& model, const PlanOptions& options,
                                 const std::string& hardware) {
  const Maker maker(model, options, hardware);
  std::vector<Strategy> result;
  result.push_back(maker.make("DP", maker.with(0, 1)));
  result.push_back(maker.model_parallel("MP", [&](std::int64_t degree) { return maker.with(0, degree); }));
  for (int stage = 1; stage <= 3; ++stage) {
    result.push_back(
        maker.make("ZeRO-" + std::to_string(stage), maker.with(stage, maker.base.tensor_parallel)));
  }
  for (const bool to_host : {false, true}) result.push_back(maker.partitioned_activations(to_host));
  result.push_back(maker.offloaded(2, Offload::optimizer, "ZeRO-2 + offload"));
  result.push_back(maker.offloaded(3, Offload::all, "ZeRO-3 + offload all"));
  return result;
}

const Strategy* fastest_that_fits(const std::vector<Strategy>& strategies) {
  const Strategy* fastest = nullptr;
  double most = 0;
  for (const Strategy& strategy : strategies) {
    if (!strategy.prediction || !strategy.prediction->fits()) continue;
    const double speed = speed_of(strategy).value_or(0);
    if (speed <= most) continue;
    most = speed;
    fastest = &strategy;
  }
  return fastest;
}

}  // namespace zeroplan::solve
