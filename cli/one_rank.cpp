#include "cli/one_rank.hpp"

#include "planner/describe/plan/engine.hpp"

namespace zeroplan::cli {
namespace {

using describe::Precision;

// By how much of its size a figure of a step may differ by rounding alone.
struct Tolerance {
  double loss = 0, norm = 0;
};

Tolerance tolerance_of(const describe::Model& model, const describe::Plan& plan) {
  const bool same_order = plan.tensor_parallel == 1 && plan.shard == 0 &&
                          (plan.data_parallel == 1 || plan.gradient_accumulation == 1);
  const bool same_parts = plan.engine.tied_gradient_apart || !model.tied_embeddings;
  switch (plan.precision) {
    case Precision::fp32:
      return same_order && same_parts ? Tolerance{} : Tolerance{.loss = 1e-4, .norm = 1e-3};
    case Precision::fp16:
      return {.loss = 5e-3, .norm = 5e-2};
    case Precision::bf16:
      break;
  }
  return {.loss = 2e-2, .norm = 2e-1};
}

// A run of one rank and all that it refers to.
struct Alone {
  describe::Plan plan;
  predict::Prediction prediction;
  LiveSettings settings;
  executor::Launch launch;

  Alone(const LiveRun& run, const describe::Cluster& cluster, std::int64_t steps)
      : plan(one_rank_plan(run.plan)),
        prediction(predict::predict(run.model, plan, cluster)),
        settings(run.settings) {
    settings.warm_up = 0;
    settings.steps = steps;
    settings.save = {};
    settings.export_to.clear();
    // The rate follows the whole run, of which these are the first steps.
    if (settings.rate.steps == 0) settings.rate.steps = run.settings.warm_up + run.settings.steps;
  }
  LiveRun of(const LiveRun& run) const {
    return {run.model, plan, prediction, settings, launch, run.identity, run.data, run.weights};
  }
};

}  // namespace

describe::Plan one_rank_plan(const describe::Plan& plan) {
  describe::Plan alone = plan;
  alone.gradient_accumulation = plan.gradient_accumulation * plan.data_parallel;
  alone.data_parallel = 1;
  alone.tensor_parallel = 1;
  alone.zero_stage = 0;
  alone.shard = 0;
  alone.secondary_shard = 0;
  alone.offload = describe::Offload::none;
  alone.partition_activations = false;
  alone.offload_activations = false;
  alone.contiguous_memory = true;
  alone.engine = describe::find_engine("native");
  return alone;
}

std::optional<std::string> cannot_repeat(const LiveRun& run, const describe::Cluster& cluster) {
  const LiveSettings& settings = run.settings;
  if (!settings.resume.empty() && settings.resume == settings.save.path) {
    return "--against-one-rank: --save writes over the file of --resume before the steps are taken again";
  }
  const Alone alone(run, cluster, 1);
  if (std::optional<std::string> reason = too_large_here(alone.prediction, alone.plan, alone.launch)) {
    return "--against-one-rank: " + *reason;
  }
  return std::nullopt;
}

program::OneRank repeat_on_one_rank(const LiveRun& run, const describe::Cluster& cluster,
                                    std::int64_t steps) {
  const Alone alone(run, cluster, steps);
  const Tolerance tolerance = tolerance_of(run.model, run.plan);
  program::OneRank result;
  result.steps = run_live(alone.of(run)).steps.kept();
  result.loss_tolerance = tolerance.loss;
  result.norm_tolerance = tolerance.norm;
  return result;
}

}  // namespace zeroplan::cli
