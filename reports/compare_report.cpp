#include "reports/compare_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <utility>

#include "planner/program/approximations.hpp"
#include "reports/approximations.hpp"
#include "reports/command_line.hpp"
#include "reports/inputs.hpp"
#include "reports/numbers.hpp"
#include "reports/speed.hpp"
#include "reports/verdict.hpp"

namespace zeroplan::reports {
namespace {

using predict::ExposedPart;
using predict::TrainingMetrics;
using solve::Strategy;

std::string command_of(const Strategy& strategy, const CompareAnswer& answer) {
  return command_line("fit", answer.model_argument, answer.hardware_argument, strategy.options);
}

Data row_data(const Strategy& strategy, const CompareAnswer& answer) {
  Data row = Data::map();
  row.set("strategy", strategy.name).set("possible", strategy.prediction.has_value());
  if (!strategy.prediction) return row.set("reason", strategy.not_possible);
  const describe::Plan& plan = strategy.resolved->plan;
  const predict::Prediction& prediction = *strategy.prediction;
  row.set("data_parallel", plan.data_parallel)
      .set("tensor_parallel", plan.tensor_parallel)
      .set("zero_stage", plan.zero_stage)
      .set("global_batch", plan.global_batch())
      .set("model_state_bytes", prediction.model_state_bytes)
      .set("peak_bytes", prediction.peak_bytes)
      .set("capacity_bytes", prediction.capacity_bytes);
  set_verdict(row, prediction);
  row.set("traffic_psi", prediction.traffic_psi)
      .set("data_parallel_traffic_bytes", prediction.traffic.data_parallel_bytes())
      .set("tensor_parallel_traffic_bytes", prediction.traffic.tensor_parallel_bytes())
      .set("host_bytes_per_gpu", prediction.host_bytes_per_device)
      .set("host_bytes_per_node", prediction.host_bytes_per_node);
  set_speed(row, {prediction, plan, strategy.resolved->cluster, answer.goal});
  row.set("command", command_of(strategy, answer));
  return row;
}

std::vector<Cell> row_cells(const Strategy& strategy) {
  if (!strategy.prediction) {
    return {strategy.name, std::string("-"), {}, {}, {}, std::string("-"), {}, {}, {}, {}};
  }
  const describe::Plan& plan = strategy.resolved->plan;
  const predict::Prediction& prediction = *strategy.prediction;
  const auto host = static_cast<double>(prediction.host_bytes_per_node);
  const double model_traffic = prediction.traffic.tensor_parallel_bytes();
  return {strategy.name,
          fmt::format("{} x {}", plan.data_parallel, plan.tensor_parallel),
          plan.global_batch(),
          Gibibytes{static_cast<double>(prediction.model_state_bytes)},
          Gibibytes{static_cast<double>(prediction.peak_bytes)},
          verdict_word(prediction.verdict),
          Real{prediction.traffic_psi, 2},
          Gigabytes{prediction.traffic.data_parallel_bytes()},
          model_traffic > 0 ? Cell(Gigabytes{model_traffic}) : Cell(),
          host > 0 ? Cell(Gigabytes{host}) : Cell()};
}

// One column of the table of times; one that is empty in every row is left out.
struct TimeColumn {
  std::string heading;
  bool is_percent = false;
  std::function<std::optional<double>(const predict::StepTime&, const TrainingMetrics&)> number;
};

TimeColumn part_column(std::string heading, ExposedPart part) {
  return {std::move(heading), true, [part](const predict::StepTime& time, const TrainingMetrics&) {
            const double exposed = time.exposed(part);
            return exposed > 0 ? std::optional(exposed / time.seconds) : std::nullopt;
          }};
}

TimeColumn metric_column(std::string heading, bool is_percent,
                         std::optional<double> TrainingMetrics::*number) {
  return {std::move(heading), is_percent,
          [number](const predict::StepTime&, const TrainingMetrics& metrics) { return metrics.*number; }};
}

std::vector<TimeColumn> time_columns(const predict::TrainingGoal& goal) {
  std::vector<TimeColumn> columns{
      {"step s", false,
       [](const predict::StepTime& time, const TrainingMetrics&) { return std::optional(time.seconds); }},
      part_column("compute", ExposedPart::compute),
      part_column("optim.", ExposedPart::optimizer),
      part_column("DP", ExposedPart::data_parallel),
      part_column("MP", ExposedPart::tensor_parallel),
      part_column("host", ExposedPart::host_copies),
      part_column("gaps", ExposedPart::launch_gaps),
      {"tokens/s", false,
       [](const predict::StepTime&, const TrainingMetrics& metrics) {
         return std::optional(metrics.tokens_per_s_per_gpu);
       }},
      metric_column("MFU %", true, &TrainingMetrics::mfu),
      metric_column("days", false, &TrainingMetrics::days),
  };
  columns.push_back(goal.tokens ? metric_column("cost", false, &TrainingMetrics::cost)
                                : metric_column("cost/1B", false, &TrainingMetrics::cost_per_billion_tokens));
  return columns;
}

void add_column(Table& table, const TimeColumn& column, const std::vector<std::optional<double>>& numbers) {
  double largest = 0;
  for (const std::optional<double>& number : numbers) largest = std::max(largest, number.value_or(0));
  if (largest == 0) return;
  table.columns.push_back({column.heading});
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!numbers[i]) {
      table.rows[i].emplace_back();
    } else if (column.is_percent) {
      table.rows[i].emplace_back(Percent{*numbers[i]});
    } else {
      table.rows[i].push_back(four_digits(*numbers[i], largest));
    }
  }
}

// The times of the strategies that are possible, or why there are none.
void add_times(std::vector<Block>& blocks, const CompareAnswer& answer) {
  Table table{{{"strategy", false}}, {}, {}};
  std::string no_time;
  std::string unproven;                  // the engine
  std::vector<std::string> conditional;  // strategies of which nobody can say whether they fit
  std::vector<std::pair<const predict::StepTime*, TrainingMetrics>> rows;
  for (const Strategy& strategy : answer.strategies) {
    if (!strategy.prediction) continue;
    const TimedPlan timed{*strategy.prediction, strategy.resolved->plan, strategy.resolved->cluster,
                          answer.goal};
    if (const std::optional<TrainingMetrics> metrics = metrics_of(timed)) {
      rows.emplace_back(&strategy.prediction->time, *metrics);
      table.rows.push_back({strategy.name});
      if (strategy.prediction->verdict == predict::Verdict::cannot_say) conditional.push_back(strategy.name);
      if (predict::is_unproven(timed.plan.engine, timed.cluster.device)) unproven = timed.plan.engine.name;
    } else if (!strategy.prediction->does_not_fit()) {
      no_time = no_time_sentence(timed);
    }
  }
  for (const TimeColumn& column : time_columns(answer.goal)) {
    std::vector<std::optional<double>> numbers;
    numbers.reserve(rows.size());
    for (const auto& [time, metrics] : rows) numbers.push_back(column.number(*time, metrics));
    add_column(table, column, numbers);
  }
  if (!rows.empty()) {
    if (!unproven.empty()) table.columns.front().heading += fmt::format(" ({}: not run on GPUs)", unproven);
    blocks.emplace_back(std::move(table));
    if (!conditional.empty()) {
      blocks.emplace_back(Paragraph{fmt::format(
          "The times of {} hold only if they fit, which cannot be said.", fmt::join(conditional, ", "))});
    }
    blocks.emplace_back(Paragraph{"Columns compute to gaps: share of the step, in %. tokens/s is per GPU."});
  }
  if (!no_time.empty()) blocks.emplace_back(Paragraph{std::move(no_time)});
}

void add_fastest(std::vector<Block>& blocks, const CompareAnswer& answer, const Strategy* fastest) {
  if (fastest != nullptr) {
    const bool tight = fastest->prediction->verdict == predict::Verdict::fits_tightly;
    blocks.emplace_back(Paragraph{fmt::format("The fastest of those that fit, by tokens/s, is {}{}:",
                                              fastest->name, tight ? ", which fits tightly" : "")});
    blocks.emplace_back(Commands{{command_of(*fastest, answer)}});
    return;
  }
  const auto fits = [](const Strategy& strategy) {
    return strategy.prediction && strategy.prediction->fits();
  };
  const bool any = std::any_of(answer.strategies.begin(), answer.strategies.end(), fits);
  blocks.emplace_back(
      Paragraph{any ? "Which of those that fit is the fastest is not known, because their times are not."
                    : "None of them is known to fit."});
}

// ---- what was assumed ----

// Keys that a strategy is about, or that the table shows for each.
constexpr std::array<std::string_view, 3> kShownByRow{"dp", "tp", "zero"};
// Keys of the devices and the batch, which all strategies share: as the user's own plan has them.
constexpr std::array<std::string_view, 5> kShared{"gpus", "nodes", "micro_batch", "grad_accum",
                                                  "global_batch"};

template <std::size_t n>
bool is_among(const std::array<std::string_view, n>& keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

struct SharedAssumption {
  describe::Assumption assumption;
  std::vector<std::string> strategies;  // that it was made for
};

// "; of ZeRO-3", or "; not of ZeRO-3" where that is shorter; nothing where it is all of them.
std::string of_which(const std::vector<std::string>& some, const std::vector<std::string>& all) {
  std::vector<std::string> others;
  for (const std::string& name : all) {
    if (std::find(some.begin(), some.end(), name) == some.end()) others.push_back(name);
  }
  if (others.empty()) return "";
  if (others.size() < some.size()) return fmt::format("; not of {}", fmt::join(others, ", "));
  return fmt::format("; of {}", fmt::join(some, ", "));
}

// One line for what was assumed for every strategy; what was assumed for some of them names these.
std::vector<describe::Assumption> shared_assumptions(const CompareAnswer& answer) {
  std::vector<SharedAssumption> found;
  std::vector<std::string> possible;
  for (const Strategy& strategy : answer.strategies) {
    if (!strategy.prediction) continue;
    possible.push_back(strategy.name);
    for (const describe::Assumption& assumption : strategy.resolved->assumptions) {
      if (is_among(kShownByRow, assumption.key) || is_among(kShared, assumption.key)) continue;
      const auto same = std::find_if(found.begin(), found.end(), [&](const SharedAssumption& other) {
        return other.assumption.key == assumption.key && other.assumption.value == assumption.value &&
               other.assumption.reason == assumption.reason;
      });
      if (same == found.end()) {
        found.push_back({assumption, {strategy.name}});
      } else {
        same->strategies.push_back(strategy.name);
      }
    }
  }
  std::vector<describe::Assumption> result;
  for (const describe::Assumption& assumption : answer.resolved.assumptions) {
    if (is_among(kShared, assumption.key)) result.push_back(assumption);
  }
  for (SharedAssumption& shared : found) {
    shared.assumption.reason += of_which(shared.strategies, possible);
    result.push_back(std::move(shared.assumption));
  }
  return result;
}

}  // namespace

Report compare_report(const CompareAnswer& answer) {
  Report report;
  Data rows = Data::list();
  Table table{{{"strategy", false},
               {"dp x tp"},
               {"batch"},
               {"states GiB"},
               {"peak GiB"},
               {"fits", false},
               {"DP Psi"},
               {"DP GB"},
               {"MP GB"},
               {"host GB"}},
              {},
              {}};
  std::vector<Block> reasons;
  for (const Strategy& strategy : answer.strategies) {
    rows.add(row_data(strategy, answer));
    table.rows.push_back(row_cells(strategy));
    if (!strategy.prediction) {
      reasons.emplace_back(
          Paragraph{fmt::format("{} is not possible: {}.", strategy.name, strategy.not_possible)});
    }
  }
  describe::ResolvedPlan shown = answer.resolved;
  shown.assumptions = shared_assumptions(answer);
  const Strategy* fastest = solve::fastest_that_fits(answer.strategies);
  add_inputs(report.blocks, answer.model, answer.resolved);
  report.blocks.emplace_back(std::move(table));
  report.blocks.emplace_back(
      Paragraph{"Memory is per GPU, traffic is sent per GPU and step, host GB is a node's. Psi: elements per "
                "parameter of the rank, as in the ZeRO paper."});
  if (answer.resolved.plan.tensor_parallel == 1) {
    report.blocks.emplace_back(
        Paragraph{"With MP, tp is the fastest that fits of those inside a node; --tp sets it."});
  }
  for (Block& reason : reasons) report.blocks.push_back(std::move(reason));
  add_times(report.blocks, answer);
  add_fastest(report.blocks, answer, fastest);
  add_assumptions(report.blocks, answer.model, shown);
  Data result = Data::map();
  result.set("fastest", fastest == nullptr ? Data() : Data(fastest->name));
  result.set("strategies", std::move(rows));
  report.data = Data::map()
                    .set("schema", "zeroplan.compare/1")
                    .set("version", answer.version)
                    .set("inputs", inputs_data(answer.model, answer.resolved))
                    .set("approximations", approximations_data(program::approximations_of(answer.model)))
                    .set("assumed", assumed_data(shown.assumptions))
                    .set("notes", notes_data(answer.model, answer.resolved))
                    .set("result", std::move(result));
  report.rows = "result.strategies";
  return report;
}

}  // namespace zeroplan::reports
