#include "reports/speed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/numbers.hpp"

namespace zeroplan::reports {
namespace {

using predict::ExposedPart;
using predict::StepTime;
using predict::TrainingMetrics;

constexpr double kTera = 1e12;
constexpr double kMilli = 1e-3;
constexpr double kNotShown = 0.0005;  // of the step: would be printed as 0.0 %

constexpr std::array<std::string_view, predict::kExposedParts> kPartTitles{
    "compute", "optimizer", "data-parallel traffic", "tensor-parallel traffic", "host copies", "launch gaps"};

constexpr std::array kSpeedKeys{
    SpeedKey{"tokens_per_second", "tokens/s", "of all GPUs",
             [](const TrainingMetrics& metrics) { return std::optional(metrics.tokens_per_s); }},
    SpeedKey{"tokens_per_second_per_gpu", "tokens/s", "of one GPU",
             [](const TrainingMetrics& metrics) { return std::optional(metrics.tokens_per_s_per_gpu); }},
    SpeedKey{"sequences_per_second", "sequences/s", "of all GPUs",
             [](const TrainingMetrics& metrics) { return std::optional(metrics.sequences_per_s); }},
    SpeedKey{"model_flops_per_second", "FLOP/s", "of all GPUs, without recomputation",
             [](const TrainingMetrics& metrics) { return std::optional(metrics.model_flops_per_s); }},
    SpeedKey{"model_flops_per_second_per_gpu", "FLOP/s", "of one GPU, without recomputation",
             [](const TrainingMetrics& metrics) { return std::optional(metrics.model_flops_per_s_per_gpu); }},
    SpeedKey{"hardware_flops_per_second", "FLOP/s", "of all GPUs, as executed",
             [](const TrainingMetrics& metrics) { return std::optional(metrics.hardware_flops_per_s); }},
    SpeedKey{
        "hardware_flops_per_second_per_gpu", "FLOP/s", "of one GPU, as executed",
        [](const TrainingMetrics& metrics) { return std::optional(metrics.hardware_flops_per_s_per_gpu); }},
    SpeedKey{"mfu", "of the peak", "model FLOPs utilization",
             [](const TrainingMetrics& metrics) { return metrics.mfu; }},
    SpeedKey{"hfu", "of the peak", "hardware FLOPs utilization",
             [](const TrainingMetrics& metrics) { return metrics.hfu; }},
    SpeedKey{"hfu_korthikanti", "of the peak", "HFU as Korthikanti et al. count selective recomputation",
             [](const TrainingMetrics& metrics) { return metrics.hfu_korthikanti; }},
    SpeedKey{"training.steps", "steps", "for the tokens of --tokens",
             [](const TrainingMetrics& metrics) { return metrics.steps; }},
    SpeedKey{"training.days", "days", "for the tokens of --tokens",
             [](const TrainingMetrics& metrics) { return metrics.days; }},
    SpeedKey{"training.gpu_hours", "GPU-hours", "for the tokens of --tokens",
             [](const TrainingMetrics& metrics) { return metrics.gpu_hours; }},
    SpeedKey{"training.cost", "price units", "of the tokens of --tokens",
             [](const TrainingMetrics& metrics) { return metrics.cost; }},
    SpeedKey{"training.cost_per_billion_tokens", "price units", "of 1e9 tokens",
             [](const TrainingMetrics& metrics) { return metrics.cost_per_billion_tokens; }},
};

template <class T>
Data nullable(const std::optional<T>& value) {
  return value ? Data(*value) : Data();
}

// "Time per step", or "Time per step (only if it fits; ...)": what it holds under stands in the table itself.
std::string conditional(std::string title, const TimedPlan& timed) {
  std::string conditions;
  if (timed.prediction.verdict == predict::Verdict::cannot_say) conditions = "only if it fits";
  if (predict::is_unproven(timed.plan.engine, timed.cluster.device)) {
    conditions += conditions.empty() ? "" : "; ";
    conditions += timed.plan.engine.name + ": not run on GPUs";
  }
  return conditions.empty() ? title : fmt::format("{} ({})", title, conditions);
}

Table time_table(const TimedPlan& timed) {
  const StepTime& time = timed.prediction.time;
  const bool in_seconds = time.seconds >= 1;
  const double unit = in_seconds ? 1 : kMilli;
  const std::string symbol = in_seconds ? "s" : "ms";
  Table table{{{conditional("Time per step", timed), false},
               {"exposed " + symbol},
               {"% of step"},
               {"busy " + symbol}},
              {},
              {}};
  const auto shown = [&](double seconds) { return four_digits(seconds / unit, time.seconds / unit); };
  for (const ExposedPart part : exposed_parts()) {
    const double exposed = time.exposed(part);
    const std::optional<double> busy = busy_seconds(time, part);
    if (std::max(exposed, busy.value_or(0)) < kNotShown * time.seconds) continue;
    table.rows.push_back({std::string(kPartTitles[static_cast<std::size_t>(part)]), shown(exposed),
                          Percent{exposed / time.seconds}, busy ? shown(*busy) : Cell()});
  }
  table.rules_before = {table.rows.size()};
  table.rows.push_back({std::string("step"), shown(time.seconds), Percent{1}, std::monostate{}});
  return table;
}

std::string exposed_text(const StepTime& time) {
  std::string text =
      "Exposed: time the step waits for this part. The rest of its busy time is hidden behind other work. ";
  if (time.waiting_seconds > 0) {
    text +=
        fmt::format("Exposed traffic has the wait for other ranks in it, busy has not: {:.4g} ms a step. ",
                    time.waiting_seconds / kMilli);
  }
  return text + "docs/accuracy.md says how far predicted times are off.";
}

Table speed_table(const TimedPlan& timed, const TrainingMetrics& metrics) {
  Table table{{{conditional("Speed", timed), false}, {"per GPU"}, {"all GPUs"}}, {}, {}};
  table.rows.push_back({std::string("tokens/s"), four_digits(metrics.tokens_per_s_per_gpu),
                        four_digits(metrics.tokens_per_s)});
  table.rows.push_back({std::string("sequences/s"), std::monostate{}, four_digits(metrics.sequences_per_s)});
  table.rows.push_back({std::string("TFLOPS of the model"),
                        four_digits(metrics.model_flops_per_s_per_gpu / kTera),
                        four_digits(metrics.model_flops_per_s / kTera)});
  table.rows.push_back({std::string("TFLOPS executed"),
                        four_digits(metrics.hardware_flops_per_s_per_gpu / kTera),
                        four_digits(metrics.hardware_flops_per_s / kTera)});
  const auto add_percent = [&](std::string title, const std::optional<double>& fraction) {
    if (fraction) table.rows.push_back({std::move(title), Percent{*fraction}, std::monostate{}});
  };
  add_percent("MFU, %", metrics.mfu);
  add_percent("HFU, %", metrics.hfu);
  add_percent("HFU as Korthikanti et al. count it, %", metrics.hfu_korthikanti);
  return table;
}

void add_training(std::vector<Block>& blocks, const TrainingMetrics& metrics, const TimedPlan& timed) {
  const predict::TrainingGoal& goal = timed.goal;
  if (!goal.tokens && !goal.price_per_gpu_hour) return;
  const std::string title =
      goal.tokens ? fmt::format("Training of {} tokens", short_count(*goal.tokens)) : std::string("Cost");
  Table table{{{conditional(title, timed), false}, {""}}, {}, {}};
  const auto add = [&](std::string name, const std::optional<double>& value) {
    if (value) table.rows.push_back({std::move(name), four_digits(*value)});
  };
  add("steps", metrics.steps);
  add("days", metrics.days);
  add("GPU-hours", metrics.gpu_hours);
  if (goal.price_per_gpu_hour) {
    const std::string price = fmt::format("at {} per GPU-hour", *goal.price_per_gpu_hour);
    if (goal.tokens) {
      add("cost, " + price, metrics.cost);
    } else {
      add("1B tokens, " + price, metrics.cost_per_billion_tokens);
    }
  }
  blocks.emplace_back(std::move(table));
}

}  // namespace

std::optional<TrainingMetrics> metrics_of(const TimedPlan& timed) {
  const std::optional<predict::TrainingStep> step =
      predict::training_step(timed.prediction, timed.plan, timed.cluster.device);
  if (!step) return std::nullopt;
  return predict::training_metrics(*step, timed.goal);
}

std::span<const SpeedKey> speed_keys() { return kSpeedKeys; }

std::array<ExposedPart, predict::kExposedParts> exposed_parts() {
  std::array<ExposedPart, predict::kExposedParts> parts{};
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = static_cast<ExposedPart>(i);
  return parts;
}

std::optional<double> busy_seconds(const StepTime& time, ExposedPart part) {
  switch (part) {
    case ExposedPart::compute:
      return time.compute_seconds - time.optimizer_seconds;
    case ExposedPart::optimizer:
      return time.optimizer_seconds;
    case ExposedPart::data_parallel:
      return time.data_parallel_seconds;
    case ExposedPart::tensor_parallel:
      return time.tensor_parallel_seconds;
    case ExposedPart::host_copies:
      return time.host_copy_seconds;
    case ExposedPart::launch_gaps:
      break;
  }
  return std::nullopt;
}

void set_speed(Data& result, const TimedPlan& timed) {
  const StepTime& time = timed.prediction.time;
  const bool known = predict::has_time(timed.prediction);
  Data exposed = Data::map();
  Data busy = Data::map();
  for (const ExposedPart part : exposed_parts()) {
    const std::string name(predict::name_of(part));
    exposed.set(name, known ? Data(time.exposed(part)) : Data());
    const std::optional<double> alone = busy_seconds(time, part);
    if (alone) busy.set(name, known ? Data(*alone) : Data());
  }
  Data conditions = Data::list();
  for (const std::string& condition : predict::time_conditions(timed.prediction, timed.plan, timed.cluster)) {
    conditions.add(condition);
  }
  result.set("step_seconds", known ? Data(time.seconds) : Data())
      .set("time_not_known",
           known ? Data() : Data(predict::why_no_time(timed.prediction, timed.plan, timed.cluster)))
      .set("time_conditions", std::move(conditions))
      .set("exposed_seconds", std::move(exposed))
      .set("busy_seconds", std::move(busy));
  const std::optional<TrainingMetrics> metrics = metrics_of(timed);
  Data training = Data::map()
                      .set("tokens", nullable(timed.goal.tokens))
                      .set("price_per_gpu_hour", nullable(timed.goal.price_per_gpu_hour));
  for (const SpeedKey& key : kSpeedKeys) {
    Data value = metrics ? nullable(key.read(*metrics)) : Data();
    if (key.name.starts_with(kTrainingPrefix)) {
      training.set(std::string(key.name.substr(kTrainingPrefix.size())), std::move(value));
    } else {
      result.set(std::string(key.name), std::move(value));
    }
  }
  result.set("training", std::move(training));
}

void add_speed(std::vector<Block>& blocks, const TimedPlan& timed) {
  const std::optional<TrainingMetrics> metrics = metrics_of(timed);
  if (!metrics) {
    blocks.emplace_back(Paragraph{no_time_sentence(timed)});
    return;
  }
  blocks.emplace_back(time_table(timed));
  blocks.emplace_back(Paragraph{exposed_text(timed.prediction.time)});
  blocks.emplace_back(speed_table(timed, *metrics));
  add_training(blocks, *metrics, timed);
}

std::string no_time_sentence(const TimedPlan& timed) {
  const std::string reason = predict::why_no_time(timed.prediction, timed.plan, timed.cluster);
  if (timed.prediction.does_not_fit()) return fmt::format("No time and no cost are given: {}.", reason);
  return fmt::format("The time of a step is not known: {}.", reason);
}

Cell four_digits(double value, double scale) {
  constexpr double kWholeFrom = 1000;
  constexpr int kDigits = 3;  // behind the first one
  constexpr int kMostDecimals = 6;
  if (std::abs(scale) >= kWholeFrom) return static_cast<std::int64_t>(std::llround(value));
  const int magnitude = scale == 0 ? 0 : static_cast<int>(std::floor(std::log10(std::abs(scale))));
  return Real{value, std::clamp(kDigits - magnitude, 0, kMostDecimals)};
}

Cell four_digits(double value) { return four_digits(value, value); }

}  // namespace zeroplan::reports
