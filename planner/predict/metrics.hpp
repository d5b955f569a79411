#pragma once

#include <cstdint>
#include <optional>

#include "planner/describe/plan/plan.hpp"
#include "planner/predict/work.hpp"

// What a training run is asked for in the end: tokens per second, FLOP/s, how much of the machine's peak that
// is, days and cost. Every definition, with its source, is in docs/metrics.md.
namespace zeroplan::predict {

// One optimizer step of a run, predicted or measured.
struct TrainingStep {
  double seconds = 0;  // positive
  Work work;
  std::int64_t tokens = 0, sequences = 0;  // of all ranks
  std::int64_t devices = 1;
  double peak_flops_per_s = 0;  // of one device (peak_tflops); 0: not known
  describe::Recompute recompute = describe::Recompute::none;
};

// What the whole training is to come to, as far as the user says.
struct TrainingGoal {
  std::optional<std::int64_t> tokens;
  std::optional<double> price_per_gpu_hour;  // in any currency: costs are in the same
};

struct TrainingMetrics {
  double tokens_per_s = 0;  // of all devices, as the rates without "per_gpu" are
  double tokens_per_s_per_gpu = 0;
  double sequences_per_s = 0;
  double model_flops_per_s = 0;
  double model_flops_per_s_per_gpu = 0;
  double hardware_flops_per_s = 0;
  double hardware_flops_per_s_per_gpu = 0;

  // Fractions of the peak; nothing where it is not known. `hfu_korthikanti`: with selective recomputation,
  // the HFU as Korthikanti et al. (arXiv 2205.05198, Appendix A) count it, attention executed twice in full.
  std::optional<double> mfu, hfu, hfu_korthikanti;

  // Of the goal's tokens; nothing where none are given.
  std::optional<double> steps, days, gpu_hours;
  std::optional<double> cost;                     // and a price
  std::optional<double> cost_per_billion_tokens;  // with a price
};

TrainingMetrics training_metrics(const TrainingStep& step, const TrainingGoal& goal = {});

}  // namespace zeroplan::predict
