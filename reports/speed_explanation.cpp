#include "reports/speed_explanation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "planner/predict/repetition.hpp"
#include "planner/predict/step_costs.hpp"
#include "reports/numbers.hpp"
#include "reports/program_terms.hpp"
#include "reports/speed.hpp"

namespace zeroplan::reports {
namespace {

using predict::ExposedPart;
using predict::TrainingMetrics;
using predict::TrainingStep;

constexpr double kMilli = 1e-3;
constexpr double kRounding = 1e-9;  // relative: waiting is added to seconds and taken away again
constexpr std::string_view kTimeSource = "docs/metrics.md, \"Time\"; docs/equations.md, \"Time\"";
constexpr std::string_view kPalm = "Chowdhery et al. (PaLM), arXiv 2204.02311, Section 4.1 and Appendix B";
constexpr std::string_view kKorthikanti = "Korthikanti et al., arXiv 2205.05198, Section 6.3 and Appendix A";
constexpr std::string_view kDefinitions = "docs/metrics.md, \"Speed\"";
constexpr std::string_view kTraining =
    "docs/metrics.md, \"Training\"; Narayanan et al., arXiv 2104.04473, Section 5.1";

ExposedPart part_named(std::string_view name) {
  const auto parts = exposed_parts();
  return *std::find_if(parts.begin(), parts.end(),
                       [&](ExposedPart part) { return predict::name_of(part) == name; });
}

Explanation explain_step(const predict::StepTime& time) {
  Explanation result{"the sum of what the step waits for", {}, std::string(kTimeSource)};
  for (const ExposedPart part : exposed_parts()) {
    const double exposed = time.exposed(part);
    if (exposed == 0) continue;
    result.terms.push_back({spaced(std::string(predict::name_of(part))),
                            fmt::format("{:.1f} % of the step", 100 * exposed / time.seconds), exposed});
  }
  return result;
}

Explanation explain_exposed(const predict::StepTime& time, ExposedPart part) {
  Explanation result{
      "what the step would be faster by if this took no time, taken away one after the other: launch gaps, "
      "host copies, data-parallel, tensor-parallel traffic; what is left is kernels",
      {},
      std::string(kTimeSource)};
  const double exposed = time.exposed(part);
  const std::optional<double> busy = busy_seconds(time, part);
  if (!busy) {
    result.terms.push_back({"the device waits for the host, or between kernels", "", exposed});
    return result;
  }
  result.terms.push_back({"busy", "", *busy});
  const double waiting = time.waiting(part);
  if (waiting > 0) result.terms.push_back({"waiting for other ranks", "", waiting});
  const double beyond = exposed - (*busy + waiting);
  if (std::abs(beyond) <= kRounding * exposed) return result;
  if (beyond < 0) result.terms.push_back({"hidden behind other work", "", beyond});
  if (beyond > 0) result.terms.push_back({"what other work loses by it", "", beyond});
  return result;
}

// One term for all instructions of a part that are alike.
Explanation explain_busy(const PredictedPlan& input, ExposedPart part) {
  const program::StepProgram& step = input.prediction.program();
  const describe::Cluster& cluster = input.resolved.cluster;
  const auto costs =
      predict::step_costs(step, cluster, predict::kernel_rates(cluster.device, input.resolved.plan));
  Explanation result{
      "the sum over instructions, each by itself, of times x seconds", {}, std::string(kTimeSource)};
  if (!costs) return result;
  struct Alike {
    std::string name;
    double seconds = 0;
    double times = 0;
  };
  std::vector<Alike> list;
  predict::for_each_repeated(
      step, [&](const program::Instruction& instruction, program::Phase phase, double times) {
        if (predict::part_of(step, instruction, phase) != part) return;
        const double seconds = costs->busy_of(static_cast<std::size_t>(&instruction - step.code.data()));
        if (seconds == 0) return;
        std::string name = instruction_name(step, instruction, phase);
        const auto found = std::find_if(list.begin(), list.end(), [&](const Alike& other) {
          return other.name == name && std::abs(other.seconds - seconds) <= kRounding * seconds;
        });
        if (found != list.end()) {
          found->times += times;
        } else {
          list.push_back({std::move(name), seconds, times});
        }
      });
  for (Alike& alike : list) {
    result.terms.push_back({std::move(alike.name),
                            fmt::format("{:.0f} x {:.4g} ms", alike.times, alike.seconds / kMilli),
                            alike.times * alike.seconds});
  }
  return result;
}

Explanation one_term(std::string formula, std::string arithmetic, double value, std::string_view source) {
  std::string name = formula;
  return {std::move(formula), {{std::move(name), std::move(arithmetic), value}}, std::string(source)};
}

std::string whole(double value) { return thousands(static_cast<std::int64_t>(value)); }

struct Rates {
  const TrainingStep& step;
  const TrainingMetrics& metrics;
  const PredictedPlan& input;

  std::string per_step(const std::string& amount, bool per_gpu) const {
    const std::string seconds = fmt::format("{} / {:.6g} s", amount, step.seconds);
    return per_gpu ? fmt::format("{} / {}", seconds, counted(step.devices, "GPU")) : seconds;
  }

  Explanation rate(std::string_view key, double value) const {
    const bool per_gpu = key.ends_with("_per_gpu");
    const std::string tail = per_gpu ? " / seconds of a step / GPUs" : " / seconds of a step";
    if (key.starts_with("tokens")) {
      return one_term("tokens of a step" + tail, per_step(thousands(step.tokens), per_gpu), value,
                      kDefinitions);
    }
    if (key.starts_with("sequences")) {
      return one_term("sequences of a step" + tail, per_step(thousands(step.sequences), per_gpu), value,
                      kDefinitions);
    }
    const bool executed = key.starts_with("hardware");
    const double flops = executed ? step.work.hardware_all_ranks : step.work.model_all_ranks;
    return one_term((executed ? "FLOPs executed in a step" : "FLOPs of the model in a step") + tail,
                    per_step(whole(flops), per_gpu), value, kDefinitions);
  }

  Explanation utilization(bool executed, double value) const {
    const double rate = executed ? metrics.hardware_flops_per_s_per_gpu : metrics.model_flops_per_s_per_gpu;
    const auto& peak = predict::peak_tflops(input.resolved.cluster.device, input.resolved.plan.precision);
    std::string source = std::string(executed ? kKorthikanti : kPalm);
    if (peak) source += "; the peak: " + peak->source;
    return one_term(executed ? "FLOP/s executed / peak" : "FLOP/s of the model / peak",
                    fmt::format("{:.6g} / {:.6g}", rate, step.peak_flops_per_s), value, source);
  }

  Explanation korthikanti() const {
    const double share = step.work.model_attention / step.work.model;
    return {"the model's FLOPs, and those of its attention once more",
            {{"mfu", "", *metrics.mfu},
             {"attention", fmt::format("{:.6g} x {:.6g} of the model's FLOPs", *metrics.mfu, share),
              *metrics.mfu * share}},
            std::string(kKorthikanti)};
  }

  Explanation training(std::string_view name, double value) const {
    const double tokens = static_cast<double>(input.goal.tokens.value_or(0));
    const double price = input.goal.price_per_gpu_hour.value_or(0);
    if (name == "steps") {
      return one_term("tokens / tokens of a step",
                      fmt::format("{} / {}", whole(tokens), thousands(step.tokens)), value, kTraining);
    }
    if (name == "days") {
      return one_term("tokens / tokens per second / seconds of a day",
                      fmt::format("{} / {:.6g} / 86,400", whole(tokens), metrics.tokens_per_s), value,
                      kTraining);
    }
    if (name == "gpu_hours") {
      return one_term("tokens / tokens per second and GPU / seconds of an hour",
                      fmt::format("{} / {:.6g} / 3,600", whole(tokens), metrics.tokens_per_s_per_gpu), value,
                      kTraining);
    }
    if (name == "cost") {
      return one_term("GPU-hours x price of one", fmt::format("{:.6g} x {}", *metrics.gpu_hours, price),
                      value, kTraining);
    }
    return one_term("1e9 tokens / tokens per second and GPU / seconds of an hour x price of a GPU-hour",
                    fmt::format("1e9 / {:.6g} / 3,600 x {}", metrics.tokens_per_s_per_gpu, price), value,
                    kTraining);
  }
};

}  // namespace

bool is_time_or_speed(std::string_view key) {
  static const std::vector<Figure> list = speed_figures();
  return std::any_of(list.begin(), list.end(), [&](const Figure& figure) { return figure.key == key; });
}

Explanation explain_time_or_speed(std::string_view key, const PredictedPlan& input) {
  const predict::StepTime& time = input.prediction.time;
  if (key == "step_seconds") return explain_step(time);
  if (key.starts_with(kExposedPrefix)) {
    return explain_exposed(time, part_named(key.substr(kExposedPrefix.size())));
  }
  if (key.starts_with(kBusyPrefix)) return explain_busy(input, part_named(key.substr(kBusyPrefix.size())));

  const std::optional<TrainingStep> step =
      predict::training_step(input.prediction, input.resolved.plan, input.resolved.cluster.device);
  if (!step) return {};
  const TrainingMetrics metrics = predict::training_metrics(*step, input.goal);
  const Rates rates{*step, metrics, input};
  const double value = number_of(figure_of(key).read(input));
  if (key == "mfu" || key == "hfu") return rates.utilization(key == "hfu", value);
  if (key == "hfu_korthikanti") return rates.korthikanti();
  if (key.starts_with(kTrainingPrefix)) return rates.training(key.substr(kTrainingPrefix.size()), value);
  return rates.rate(key, value);
}

std::string why_no_time_or_speed(std::string_view key, const PredictedPlan& input) {
  const describe::Plan& plan = input.resolved.plan;
  const describe::Cluster& cluster = input.resolved.cluster;
  if (std::string reason = predict::why_no_time(input.prediction, plan, cluster); !reason.empty())
    return reason;
  if (!figure_of(key).read(input).is_null()) return {};
  if (key == "training.cost") return "it needs --tokens and --price";
  if (key == "training.cost_per_billion_tokens") return "it needs --price";
  if (key.starts_with(kTrainingPrefix)) return "it needs --tokens";
  if (key == "hfu_korthikanti" && !figure_of("mfu").read(input).is_null())
    return "the plan does not recompute selectively";
  return fmt::format("the description of {} has no peak in {}", cluster.device->name,
                     describe::name_of(plan.precision));
}

}  // namespace zeroplan::reports
