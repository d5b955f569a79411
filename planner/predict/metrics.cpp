#include "planner/predict/metrics.hpp"

namespace zeroplan::predict {

namespace {

constexpr double kSecondsPerHour = 3600;
constexpr double kHoursPerDay = 24;
constexpr double kBillion = 1e9;

void read_utilization(TrainingMetrics& metrics, const TrainingStep& step) {
  if (step.peak_flops_per_s <= 0) return;
  metrics.mfu = metrics.model_flops_per_s_per_gpu / step.peak_flops_per_s;
  metrics.hfu = metrics.hardware_flops_per_s_per_gpu / step.peak_flops_per_s;
  if (step.recompute != describe::Recompute::selective || step.work.model <= 0) return;
  metrics.hfu_korthikanti = *metrics.mfu * (1 + step.work.model_attention / step.work.model);
}

void read_goal(TrainingMetrics& metrics, const TrainingStep& step, const TrainingGoal& goal) {
  const auto gpu_hours = [&](double tokens) {
    return tokens / metrics.tokens_per_s_per_gpu / kSecondsPerHour;
  };
  if (goal.tokens) {
    const auto tokens = static_cast<double>(*goal.tokens);
    metrics.steps = tokens / static_cast<double>(step.tokens);
    metrics.days = tokens / metrics.tokens_per_s / kSecondsPerHour / kHoursPerDay;
    metrics.gpu_hours = gpu_hours(tokens);
  }
  if (!goal.price_per_gpu_hour) return;
  if (metrics.gpu_hours) metrics.cost = *goal.price_per_gpu_hour * *metrics.gpu_hours;
  metrics.cost_per_billion_tokens = *goal.price_per_gpu_hour * gpu_hours(kBillion);
}

}  // namespace

TrainingMetrics training_metrics(const TrainingStep& step, const TrainingGoal& goal) {
  const auto devices = static_cast<double>(step.devices);
  TrainingMetrics metrics;
  metrics.tokens_per_s = static_cast<double>(step.tokens) / step.seconds;
  metrics.tokens_per_s_per_gpu = metrics.tokens_per_s / devices;
  metrics.sequences_per_s = static_cast<double>(step.sequences) / step.seconds;
  metrics.model_flops_per_s = step.work.model_all_ranks / step.seconds;
  metrics.model_flops_per_s_per_gpu = metrics.model_flops_per_s / devices;
  metrics.hardware_flops_per_s = step.work.hardware_all_ranks / step.seconds;
  metrics.hardware_flops_per_s_per_gpu = metrics.hardware_flops_per_s / devices;
  read_utilization(metrics, step);
  read_goal(metrics, step, goal);
  return metrics;
}

}  // namespace zeroplan::predict
