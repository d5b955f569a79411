#include "cli/one_rank.hpp"

#include "planner/solve/one_rank.hpp"

namespace zeroplan::cli {
namespace {

// A run of one rank and all that it refers to.
struct Alone {
  describe::Plan plan;
  predict::Prediction prediction;
  executor::RunSettings settings;
  executor::Launch launch;

  Alone(const LiveRun& run, const describe::Cluster& cluster, std::int64_t steps)
      : plan(solve::one_rank_plan(run.plan)),
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

std::optional<std::string> cannot_repeat(const LiveRun& run, const describe::Cluster& cluster) {
  const executor::RunSettings& settings = run.settings;
  if (!settings.resume.empty() && settings.resume == settings.save.path) {
    return "--against-one-rank: --save writes over the file of --resume before the steps are taken again";
  }
  const Alone alone(run, cluster, 1);
  if (std::optional<std::string> reason =
          too_large_here(alone.prediction, alone.plan, alone.launch, settings.device == "cuda")) {
    return "--against-one-rank: " + *reason;
  }
  return std::nullopt;
}

program::OneRank repeat_on_one_rank(const LiveRun& run, const describe::Cluster& cluster,
                                    std::int64_t steps) {
  const Alone alone(run, cluster, steps);
  const solve::RoundingTolerance tolerance = solve::one_rank_tolerance(run.model, run.plan);
  program::OneRank result;
  result.steps = run_live(alone.of(run)).steps.kept();
  result.loss_tolerance = tolerance.loss;
  result.norm_tolerance = tolerance.norm;
  return result;
}

}  // namespace zeroplan::cli
