#include "reports/compare_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "reports/inputs.hpp"
#include "reports/numbers.hpp"
#include "reports/speed.hpp"

namespace zeroplan::reports {
namespace {

using predict::ExposedPart;
using predict::TrainingMetrics;
using program::Group;
using solve::Strategy;

std::string verdict_text(predict::Verdict verdict) {
  switch (verdict) {
    case predict::Verdict::fits:
      return "yes";
    case predict::Verdict::tight:
      return "tight";
    case predict::Verdict::does_not_fit:
      return "no";
  }
  return {};
}

Data row_data(const Strategy& strategy, const describe::Cluster& cluster, const predict::TrainingGoal& goal) {
  Data row = Data::map();
  row.set("strategy", strategy.name).set("possible", strategy.prediction.has_value());
  if (!strategy.prediction) return row.set("reason", strategy.not_possible);
  const describe::Plan& plan = strategy.plan;
  const predict::Prediction& prediction = *strategy.prediction;
  row.set("data_parallel", plan.data_parallel)
      .set("tensor_parallel", plan.tensor_parallel)
      .set("zero_stage", plan.zero_stage)
      .set("global_batch", plan.global_batch())
      .set("model_state_bytes", prediction.model_state_bytes)
      .set("peak_bytes", prediction.peak_bytes)
      .set("capacity_bytes", prediction.capacity_bytes)
      .set("fits", prediction.fits())
      .set("verdict", predict::name_of(prediction.verdict))
      .set("traffic_psi", prediction.traffic_psi)
      .set("data_parallel_traffic_bytes", prediction.traffic.sent_bytes(Group::data_parallel))
      .set("tensor_parallel_traffic_bytes", prediction.traffic.sent_bytes(Group::tensor_parallel))
      .set("host_bytes_per_gpu", prediction.host_bytes_per_device)
      .set("host_bytes_per_node", prediction.host_bytes_per_node);
  set_speed(row, {prediction, plan, cluster, goal});
  return row;
}

std::vector<Cell> row_cells(const Strategy& strategy) {
  if (!strategy.prediction) {
    return {strategy.name, std::string("-"), {}, {}, {}, std::string("-"), {}, {}, {}, {}};
  }
  const describe::Plan& plan = strategy.plan;
  const predict::Prediction& prediction = *strategy.prediction;
  const auto host = static_cast<double>(prediction.host_bytes_per_node);
  const double model_traffic = prediction.traffic.sent_bytes(Group::tensor_parallel);
  return {strategy.name,
          fmt::format("{} x {}", plan.data_parallel, plan.tensor_parallel),
          plan.global_batch(),
          Gibibytes{static_cast<double>(prediction.model_state_bytes)},
          Gibibytes{static_cast<double>(prediction.peak_bytes)},
          verdict_text(prediction.verdict),
          Real{prediction.traffic_psi, 2},
          Gigabytes{prediction.traffic.sent_bytes(Group::data_parallel)},
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
void add_times(std::vector<Block>& blocks, const std::vector<Strategy>& strategies,
               const describe::Cluster& cluster, const predict::TrainingGoal& goal) {
  Table table{{{"strategy", false}}, {}, {}};
  std::string no_time;
  std::vector<std::pair<const predict::StepTime*, TrainingMetrics>> rows;
  for (const Strategy& strategy : strategies) {
    if (!strategy.prediction) continue;
    const TimedPlan timed{*strategy.prediction, strategy.plan, cluster, goal};
    if (const std::optional<TrainingMetrics> metrics = metrics_of(timed)) {
      rows.emplace_back(&strategy.prediction->time, *metrics);
      table.rows.push_back({strategy.name});
    } else {
      no_time = no_time_sentence(timed);
    }
  }
  for (const TimeColumn& column : time_columns(goal)) {
    std::vector<std::optional<double>> numbers;
    numbers.reserve(rows.size());
    for (const auto& [time, metrics] : rows) numbers.push_back(column.number(*time, metrics));
    add_column(table, column, numbers);
  }
  if (!rows.empty()) {
    blocks.emplace_back(std::move(table));
    blocks.emplace_back(
        Paragraph{"compute to gaps: what the step waits for, in % of it. tokens/s is per GPU."});
  }
  if (!no_time.empty()) blocks.emplace_back(Paragraph{std::move(no_time)});
}

}  // namespace

Report compare_report(std::string_view version, const describe::Model& model,
                      const describe::ResolvedPlan& resolved, const std::vector<Strategy>& strategies,
                      const predict::TrainingGoal& goal) {
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
               {"host GB/node"}},
              {},
              {}};
  std::vector<Block> reasons;
  for (const Strategy& strategy : strategies) {
    rows.add(row_data(strategy, resolved.cluster, goal));
    table.rows.push_back(row_cells(strategy));
    if (!strategy.prediction) {
      reasons.emplace_back(
          Paragraph{fmt::format("{} is not possible: {}.", strategy.name, strategy.not_possible)});
    }
  }
  add_inputs(report.blocks, model, resolved);
  report.blocks.emplace_back(std::move(table));
  report.blocks.emplace_back(
      Paragraph{"Memory is per GPU, traffic is sent per GPU and step. Psi: elements per parameter of the "
                "rank, as in the ZeRO paper."});
  for (Block& reason : reasons) report.blocks.push_back(std::move(reason));
  add_times(report.blocks, strategies, resolved.cluster, goal);
  add_assumptions(report.blocks, model, resolved);
  report.data = Data::map()
                    .set("schema", "zeroplan.compare/1")
                    .set("version", version)
                    .set("inputs", inputs_data(model, resolved))
                    .set("assumed", assumed_data(resolved.assumptions))
                    .set("result", Data::map().set("strategies", std::move(rows)));
  report.rows = "result.strategies";
  return report;
}

}  // namespace zeroplan::reports
