#include "reports/speed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "reports/keyed_table.hpp"
#include "reports/numbers.hpp"

namespace zeroplan::reports {
namespace {

using predict::ExposedPart;
using predict::StepTime;
using predict::TrainingMetrics;

constexpr double kMilli = 1e-3;
constexpr double kNotShown = 0.0005;  // of the step: would be printed as 0.0 %

constexpr std::array<std::string_view, predict::kExposedParts> kPartTitles{
    "compute", "optimizer", "data-parallel traffic", "tensor-parallel traffic", "host copies", "launch gaps"};

template <class T>
Data nullable(const std::optional<T>& value) {
  return value ? Data(*value) : Data();
}

std::optional<TrainingMetrics> metrics_of(const PredictedPlan& plan) {
  const std::optional<predict::TrainingStep> step =
      predict::training_step(plan.prediction, plan.resolved.plan, plan.resolved.cluster.device);
  if (!step) return std::nullopt;
  return predict::training_metrics(*step, plan.goal);
}

// Null where the time of a step is not known.
template <class Number>
Figure metric(std::string key, std::string title, std::string unit, std::string what,
              Number TrainingMetrics::*number) {
  return {std::move(key), std::move(title), std::move(unit), std::move(what),
          [number](const PredictedPlan& plan) {
            const std::optional<TrainingMetrics> metrics = metrics_of(plan);
            return metrics ? nullable(std::optional<double>((*metrics).*number)) : Data();
          }};
}

Figure of_time(std::string key, std::string title, std::string what,
               std::function<double(const StepTime&)> seconds) {
  return {std::move(key), std::move(title), "s", std::move(what),
          [seconds = std::move(seconds)](const PredictedPlan& plan) {
            return predict::has_time(plan.prediction) ? Data(seconds(plan.prediction.time)) : Data();
          }};
}

void add_times(std::vector<Figure>& list) {
  list.push_back(of_time(std::string(kStepSeconds), "step", "of one optimizer step",
                         [](const StepTime& time) { return time.seconds; }));
  list.push_back({"time_not_known", "", "", "", [](const PredictedPlan& plan) {
                    if (predict::has_time(plan.prediction)) return Data();
                    return Data(
                        predict::why_no_time(plan.prediction, plan.resolved.plan, plan.resolved.cluster));
                  }});
  list.push_back({"time_conditions", "", "", "", [](const PredictedPlan& plan) {
                    return texts_data(
                        predict::time_conditions(plan.prediction, plan.resolved.plan, plan.resolved.cluster));
                  }});
  for (const ExposedPart part : exposed_parts()) {
    list.push_back(of_time(std::string(kExposedPrefix) + std::string(predict::name_of(part)),
                           std::string(kPartTitles[static_cast<std::size_t>(part)]),
                           "of a step that wait for this",
                           [part](const StepTime& time) { return time.exposed(part); }));
  }
  for (const ExposedPart part : exposed_parts()) {
    if (!busy_seconds({}, part)) continue;
    list.push_back(of_time(std::string(kBusyPrefix) + std::string(predict::name_of(part)), "",
                           "of a step in which this goes on, hidden or not",
                           [part](const StepTime& time) { return *busy_seconds(time, part); }));
  }
}

void add_rates(std::vector<Figure>& list) {
  using M = TrainingMetrics;
  list.push_back(metric("tokens_per_second", "tokens/s", "tokens/s", "of all GPUs", &M::tokens_per_s));
  list.push_back(
      metric("tokens_per_second_per_gpu", "tokens/s", "tokens/s", "of one GPU", &M::tokens_per_s_per_gpu));
  list.push_back(
      metric("sequences_per_second", "sequences/s", "sequences/s", "of all GPUs", &M::sequences_per_s));
  list.push_back(metric("model_flops_per_second", "TFLOPS of the model", "FLOP/s",
                        "of all GPUs, without recomputation", &M::model_flops_per_s));
  list.push_back(metric("model_flops_per_second_per_gpu", "TFLOPS of the model", "FLOP/s",
                        "of one GPU, without recomputation", &M::model_flops_per_s_per_gpu));
  list.push_back(metric("hardware_flops_per_second", "TFLOPS executed", "FLOP/s", "of all GPUs, as executed",
                        &M::hardware_flops_per_s));
  list.push_back(metric("hardware_flops_per_second_per_gpu", "TFLOPS executed", "FLOP/s",
                        "of one GPU, as executed", &M::hardware_flops_per_s_per_gpu));
  list.push_back(metric("mfu", "MFU, %", "of the peak", "model FLOPs utilization", &M::mfu));
  list.push_back(metric("hfu", "HFU, %", "of the peak", "hardware FLOPs utilization", &M::hfu));
  list.push_back(metric("hfu_korthikanti", "HFU as Korthikanti et al. count it, %", "of the peak",
                        "HFU as Korthikanti et al. count selective recomputation", &M::hfu_korthikanti));
}

void add_training(std::vector<Figure>& list) {
  using M = TrainingMetrics;
  const std::string of_tokens = "for the tokens of --tokens";
  list.push_back(
      {"training.tokens", "", "", "", [](const PredictedPlan& plan) { return nullable(plan.goal.tokens); }});
  list.push_back({"training.price_per_gpu_hour", "", "", "",
                  [](const PredictedPlan& plan) { return nullable(plan.goal.price_per_gpu_hour); }});
  list.push_back(metric("training.steps", "steps", "steps", of_tokens, &M::steps));
  list.push_back(metric("training.days", "days", "days", of_tokens, &M::days));
  list.push_back(metric("training.gpu_hours", "GPU-hours", "GPU-hours", of_tokens, &M::gpu_hours));
  list.push_back(metric("training.cost", "cost", "price units", "of the tokens of --tokens", &M::cost));
  list.push_back(metric("training.cost_per_billion_tokens", "1B tokens", "price units", "of 1e9 tokens",
                        &M::cost_per_billion_tokens));
}

// "Time per step", or "Time per step (only if it fits; ...)": what it holds under stands in the table itself.
std::string conditional(std::string title, const PredictedPlan& plan) {
  std::string conditions;
  if (plan.prediction.verdict == predict::Verdict::cannot_say) conditions = "only if it fits";
  const describe::Engine& engine = plan.resolved.plan.engine;
  if (predict::is_unproven(engine, plan.resolved.cluster.device)) {
    conditions += conditions.empty() ? "" : "; ";
    conditions += engine.name + ": not run on GPUs";
  }
  return conditions.empty() ? title : fmt::format("{} ({})", title, conditions);
}

Table time_table(const PredictedPlan& plan, const Data& result) {
  const double step = number_at(result, kStepSeconds);
  const bool in_seconds = step >= 1;
  const double unit = in_seconds ? 1 : kMilli;
  const std::string symbol = in_seconds ? "s" : "ms";
  Table table{
      {{conditional("Time per step", plan), false}, {"exposed " + symbol}, {"% of step"}, {"busy " + symbol}},
      {},
      {}};
  const auto shown = [&](double seconds) { return four_digits(seconds / unit, step / unit); };
  for (const Figure& figure : figures()) {
    if (!figure.key.starts_with(kExposedPrefix)) continue;
    const std::string busy_key = std::string(kBusyPrefix) + figure.key.substr(kExposedPrefix.size());
    const double exposed = number_at(result, figure.key);
    const double busy = number_at(result, busy_key);
    if (std::max(exposed, busy) < kNotShown * step) continue;
    table.rows.push_back({figure.title, shown(exposed), Percent{exposed / step},
                          result.find(busy_key) == nullptr ? Cell() : shown(busy)});
  }
  table.rules_before = {table.rows.size()};
  table.rows.push_back({figure_of(kStepSeconds).title, shown(step), Percent{1}, std::monostate{}});
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

Table speed_table(const PredictedPlan& plan, const Data& result) {
  constexpr CellFormat kTeraflops{CellFormat::Kind::significant, 0, 1e12};
  Table table{{{conditional("Speed", plan), false}, {"per GPU"}, {"all GPUs"}}, {}, {}};
  const auto add = [&](const std::string& of_one, const std::string& of_all, const CellFormat& format) {
    const Figure& figure = figure_of(of_all.empty() ? of_one : of_all);
    table.rows.push_back({figure.title, cell_at(result, of_one, format), cell_at(result, of_all, format)});
  };
  add("tokens_per_second_per_gpu", "tokens_per_second", kSignificant);
  add("", "sequences_per_second", kSignificant);
  add("model_flops_per_second_per_gpu", "model_flops_per_second", kTeraflops);
  add("hardware_flops_per_second_per_gpu", "hardware_flops_per_second", kTeraflops);
  for (const char* key : {"mfu", "hfu", "hfu_korthikanti"}) {
    if (!result.find(key)->is_null()) add(key, "", kPercent);
  }
  return table;
}

void add_training(std::vector<Block>& blocks, const PredictedPlan& plan, const Data& result) {
  const predict::TrainingGoal& goal = plan.goal;
  if (!goal.tokens && !goal.price_per_gpu_hour) return;
  const std::string title =
      goal.tokens ? fmt::format("Training of {} tokens", short_count(*goal.tokens)) : std::string("Cost");
  const std::string price =
      goal.price_per_gpu_hour ? fmt::format(", at {} per GPU-hour", *goal.price_per_gpu_hour) : "";
  Table table{{{conditional(title, plan), false}, {""}}, {}, {}};
  const auto add = [&](const char* key, const std::string& remark = "") {
    if (result.find(key)->is_null()) return;
    table.rows.push_back({figure_of(key).title + remark, cell_at(result, key, kSignificant)});
  };
  add("training.steps");
  add("training.days");
  add("training.gpu_hours");
  add(goal.tokens ? "training.cost" : "training.cost_per_billion_tokens", price);
  blocks.emplace_back(std::move(table));
}

}  // namespace

std::vector<Figure> speed_figures() {
  std::vector<Figure> list;
  add_times(list);
  add_rates(list);
  add_training(list);
  return list;
}

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

void add_speed(std::vector<Block>& blocks, const PredictedPlan& plan, const Data& result) {
  if (result.find(kStepSeconds)->is_null()) {
    blocks.emplace_back(Paragraph{no_time_sentence(result)});
    return;
  }
  blocks.emplace_back(time_table(plan, result));
  blocks.emplace_back(Paragraph{exposed_text(plan.prediction.time)});
  blocks.emplace_back(speed_table(plan, result));
  add_training(blocks, plan, result);
}

std::string no_time_sentence(const Data& result) {
  const bool does_not_fit = text_at(result, "verdict") == predict::name_of(predict::Verdict::does_not_fit);
  return fmt::format("{}: {}.",
                     does_not_fit ? "No time and no cost are given" : "The time of a step is not known",
                     text_at(result, "time_not_known"));
}

}  // namespace zeroplan::reports
