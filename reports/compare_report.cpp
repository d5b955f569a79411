#include "reports/compare_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "planner/program/approximations.hpp"
#include "reports/approximations.hpp"
#include "reports/command_line.hpp"
#include "reports/inputs.hpp"
#include "reports/keyed_table.hpp"
#include "reports/numbers.hpp"
#include "reports/speed.hpp"
#include "reports/verdict.hpp"

namespace zeroplan::reports {
namespace {

using solve::Strategy;

std::string command_of(const Strategy& strategy, const CompareAnswer& answer) {
  return command_line("fit", answer.model_argument, answer.hardware_argument, strategy.options);
}

// Keys of a row and, where they are others, of the fit's figures that they are.
struct RowKey {
  std::string_view key, figure{};
};
constexpr std::array<RowKey, 12> kRowKeys{{{"model_state_bytes"},
                                           {"peak_bytes"},
                                           {"capacity_bytes"},
                                           {"fits"},
                                           {"verdict"},
                                           {"verdict_reason"},
                                           {"missing"},
                                           {"traffic_psi"},
                                           {"data_parallel_traffic_bytes", "traffic_bytes.data_parallel"},
                                           {"tensor_parallel_traffic_bytes", "traffic_bytes.tensor_parallel"},
                                           {"host_bytes_per_gpu", "host_bytes.per_gpu"},
                                           {"host_bytes_per_node", "host_bytes.per_node"}}};

Data row_data(const Strategy& strategy, const CompareAnswer& answer) {
  Data row = Data::map();
  row.set("strategy", strategy.name).set("possible", strategy.prediction.has_value());
  if (!strategy.prediction) return row.set("reason", strategy.not_possible);
  const PredictedPlan predicted{answer.model, *strategy.resolved, *strategy.prediction, answer.goal};
  const describe::Plan& plan = strategy.resolved->plan;
  row.set("data_parallel", plan.data_parallel)
      .set("tensor_parallel", plan.tensor_parallel)
      .set("zero_stage", plan.zero_stage)
      .set("global_batch", plan.global_batch());
  for (const RowKey& of_row : kRowKeys) {
    const Figure& figure = figure_of(of_row.figure.empty() ? of_row.key : of_row.figure);
    row.set(std::string(of_row.key), figure.read(predicted));
  }
  for (const Figure& figure : speed_figures()) row.set_at(figure.key, figure.read(predicted));
  return row.set("command", command_of(strategy, answer));
}

bool is_possible(const Data& row) { return *row.find("possible")->as<bool>(); }

Table strategies_table(const Data::List& rows) {
  const auto if_possible = [](const auto& text) {
    return [text](const Data& row) { return is_possible(row) ? Cell(text(row)) : Cell(std::string("-")); };
  };
  CellFormat if_any = kGigabytes;
  if_any.blank_at_zero = true;
  return table_of(rows, {{{"strategy", false}, "strategy"},
                         {{"dp x tp"}, "", kPlain, if_possible([](const Data& row) {
                            return fmt::format("{} x {}", number_at(row, "data_parallel"),
                                               number_at(row, "tensor_parallel"));
                          })},
                         {{"batch"}, "global_batch"},
                         {{"states GiB"}, "model_state_bytes", kGibibytes},
                         {{"peak GiB"}, "peak_bytes", kGibibytes},
                         {{"fits", false}, "", kPlain, if_possible([](const Data& row) {
                            return verdict_word(text_at(row, "verdict"));
                          })},
                         {{"DP Psi"}, "traffic_psi", decimals(2)},
                         {{"DP GB"}, "data_parallel_traffic_bytes", kGigabytes},
                         {{"MP GB"}, "tensor_parallel_traffic_bytes", if_any},
                         {{"host GB"}, "host_bytes_per_node", if_any}});
}

// Headings and keys of the table of times; parts of a step are shown as shares of it.
struct TimeColumn {
  std::string heading;
  std::string key;
  bool is_percent = false;
};

std::vector<TimeColumn> time_columns(const predict::TrainingGoal& goal) {
  std::vector<TimeColumn> columns{{"step s", std::string(kStepSeconds)}};
  constexpr std::array<const char*, predict::kExposedParts> kHeadings{"compute", "optim.", "DP",
                                                                      "MP",      "host",   "gaps"};
  for (const predict::ExposedPart part : exposed_parts()) {
    columns.push_back({kHeadings[static_cast<std::size_t>(part)],
                       std::string(kExposedPrefix) + std::string(predict::name_of(part)), true});
  }
  columns.push_back({"tokens/s", "tokens_per_second_per_gpu"});
  columns.push_back({"MFU %", "mfu", true});
  columns.push_back({"days", "training.days"});
  columns.push_back(goal.tokens ? TimeColumn{"cost", "training.cost"}
                                : TimeColumn{"cost/1B", "training.cost_per_billion_tokens"});
  return columns;
}

// With as many decimals as the largest number needs. A column that is empty in every row is left out.
void add_column(Table& table, const TimeColumn& column, const std::vector<const Data*>& rows) {
  double largest = 0;
  for (const Data* row : rows) largest = std::max(largest, number_at(*row, column.key));
  if (largest == 0) return;
  table.columns.push_back({column.heading});
  const bool is_part = column.key.starts_with(kExposedPrefix);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double number = number_at(*rows[i], column.key);
    if (number == 0) {
      table.rows[i].emplace_back();
    } else if (column.is_percent) {
      table.rows[i].emplace_back(Percent{is_part ? number / number_at(*rows[i], kStepSeconds) : number});
    } else {
      table.rows[i].push_back(four_digits(number, largest));
    }
  }
}

// The times of the strategies that are possible, or why there are none.
void add_times(std::vector<Block>& blocks, const CompareAnswer& answer, const Data::List& data) {
  Table table{{{"strategy", false}}, {}, {}};
  std::string no_time;
  std::string unproven;                  // the engine
  std::vector<std::string> conditional;  // strategies of which nobody can say whether they fit
  std::vector<const Data*> rows;
  for (std::size_t i = 0; i < data.size(); ++i) {
    const Strategy& strategy = answer.strategies[i];
    if (!strategy.prediction) continue;
    if (data[i].find(kStepSeconds)->is_null()) {
      if (!strategy.prediction->does_not_fit()) no_time = no_time_sentence(data[i]);
      continue;
    }
    rows.push_back(&data[i]);
    table.rows.push_back({strategy.name});
    if (strategy.prediction->verdict == predict::Verdict::cannot_say) conditional.push_back(strategy.name);
    const describe::ResolvedPlan& resolved = *strategy.resolved;
    if (predict::is_unproven(resolved.plan.engine, resolved.cluster.device)) {
      unproven = resolved.plan.engine->name;
    }
  }
  for (const TimeColumn& column : time_columns(answer.goal)) add_column(table, column, rows);
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
  Data::List rows;
  rows.reserve(answer.strategies.size());
  std::vector<Block> reasons;
  for (const Strategy& strategy : answer.strategies) {
    rows.push_back(row_data(strategy, answer));
    if (!strategy.prediction) {
      reasons.emplace_back(
          Paragraph{fmt::format("{} is not possible: {}.", strategy.name, strategy.not_possible)});
    }
  }
  describe::ResolvedPlan shown = answer.resolved;
  shown.assumptions = shared_assumptions(answer);
  const Strategy* fastest = solve::fastest_that_fits(answer.strategies);
  add_inputs(report.blocks, answer.model, answer.resolved);
  report.blocks.emplace_back(strategies_table(rows));
  report.blocks.emplace_back(
      Paragraph{"Memory is per GPU, traffic is sent per GPU and step, host GB is a node's. Psi: elements per "
                "parameter of the rank, as in the ZeRO paper."});
  if (answer.resolved.plan.tensor_parallel == 1) {
    report.blocks.emplace_back(
        Paragraph{"With MP, tp is the fastest that fits of those inside a node; --tp sets it."});
  }
  for (Block& reason : reasons) report.blocks.push_back(std::move(reason));
  add_times(report.blocks, answer, rows);
  add_fastest(report.blocks, answer, fastest);
  add_assumptions(report.blocks, answer.model, shown);
  Data result = Data::map();
  result.set("fastest", fastest == nullptr ? Data() : Data(fastest->name));
  result.set("strategies", Data::list_of(std::move(rows)));
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
