#include "reports/accuracy_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "planner/accuracy/pace.hpp"
#include "reports/numbers.hpp"

namespace zeroplan::reports {
namespace {

using accuracy::Accuracy;
using accuracy::ErrorStatistics;
using accuracy::Measure;
using accuracy::Score;
using accuracy::ScoredFigure;
using accuracy::VerdictCounts;
using accuracy::WrongVerdict;

constexpr std::size_t kWorst = 12;

std::int64_t whole(std::size_t count) { return static_cast<std::int64_t>(count); }

// The worst figures of a measure; `figures` has the largest error first.
std::vector<ScoredFigure> worst(const Accuracy& accuracy, Measure measure) {
  std::vector<ScoredFigure> result;
  for (const ScoredFigure& figure : accuracy.figures) {
    if (figure.measure == measure && figure.error != 0 && result.size() < kWorst) result.push_back(figure);
  }
  return result;
}

// ---- data ----

Data statistics_data(const ErrorStatistics& statistics) {
  const bool none = statistics.runs == 0;
  const auto value = [&](double number) { return none ? Data() : Data(number); };
  return Data::map()
      .set("runs", whole(statistics.runs))
      .set("median", value(statistics.median))
      .set("mean", value(statistics.mean))
      .set("percentile_90", value(statistics.percentile_90))
      .set("bias", value(statistics.bias));
}

Data verdict_data(const VerdictCounts& verdicts) {
  return Data::map()
      .set("ran_predicted_yes", whole(verdicts.ran_predicted_yes))
      .set("ran_predicted_no", whole(verdicts.ran_predicted_no))
      .set("out_of_memory_predicted_yes", whole(verdicts.out_predicted_yes))
      .set("out_of_memory_predicted_no", whole(verdicts.out_predicted_no))
      .set("ran_not_said", whole(verdicts.ran_not_said))
      .set("out_of_memory_not_said", whole(verdicts.out_not_said));
}

Data reasons_data(const Score& score) {
  Data reasons = Data::list();
  for (const auto& [reason, runs] : score.not_modelled) {
    reasons.add(Data::map().set("reason", reason).set("runs", whole(runs)));
  }
  return reasons;
}

std::string reasons_text(const Score& score) {
  std::string text;
  for (const auto& [reason, runs] : score.not_modelled) {
    text += fmt::format("{}{} x {}", text.empty() ? "" : "; ", runs, reason);
  }
  return text;
}

void add_score(Data& data, const Score& score) {
  data.set("runs", whole(score.runs))
      .set("used", whole(score.used))
      .set("memory", statistics_data(score.memory))
      .set("time", statistics_data(score.time))
      .set("held_out_time", statistics_data(score.held_out))
      .set("verdicts", verdict_data(score.verdicts));
}

Data figure_data(const ScoredFigure& figure) {
  return Data::map()
      .set("id", figure.id)
      .set("measure", name_of(figure.measure))
      .set("kind", figure.kind)
      .set("predicted", figure.predicted)
      .set("measured_low", figure.low)
      .set("measured_high", figure.high)
      .set("error", figure.error);
}

// With the same keys where there is none, so that every row of the CSV has them.
Data figure_data(const std::optional<ScoredFigure>& figure) {
  if (figure) return figure_data(*figure);
  Data data = Data::map();
  for (const char* key : {"id", "measure", "kind", "predicted", "measured_low", "measured_high", "error"}) {
    data.set(key, {});
  }
  return data;
}

Data total_data(const Score& score) {
  Data data = Data::map();
  add_score(data, score);
  return data.set("not_modelled", reasons_data(score));
}

// Why its runs are none; null where they are.
Data evidence_data(const Score& score) {
  return score.not_evidence.empty() ? Data() : Data(score.not_evidence);
}

Data source_data(const Score& score) {
  Data data = Data::map().set("source", score.source).set("not_evidence", evidence_data(score));
  add_score(data, score);
  return data.set("not_modelled", reasons_data(score));
}

Data group_data(const Score& score) {
  Data data = Data::map()
                  .set("source", score.source)
                  .set("gpu", score.gpu)
                  .set("zero_stage", score.stage)
                  .set("not_evidence", evidence_data(score));
  add_score(data, score);
  return data.set("worst_memory", figure_data(score.worst_memory))
      .set("worst_time", figure_data(score.worst_time))
      .set("reasons", reasons_text(score));
}

Data wrong_data(const WrongVerdict& verdict) {
  return Data::map()
      .set("id", verdict.id)
      .set("ran", verdict.ran)
      .set("predicted_gib", verdict.predicted_gib)
      .set("capacity_gib", verdict.capacity_gib);
}

template <class Item, class Make>
Data list_data(const std::vector<Item>& items, Make make) {
  Data list = Data::list();
  for (const Item& item : items) list.add(make(item));
  return list;
}

Data answer_data(std::string_view version, const AccuracyInputs& inputs, const Accuracy& accuracy) {
  Data kinds = list_data(accuracy.memory_kinds, [](const auto& kind) {
    return Data::map().set("kind", kind.first).set("memory", statistics_data(kind.second));
  });
  const auto listed = [](const ScoredFigure& figure) { return figure_data(figure); };
  Data result = Data::map();
  result.set("total", total_data(accuracy.total))
      .set("sources", list_data(accuracy.sources, source_data))
      .set("groups", list_data(accuracy.groups, group_data))
      .set("memory_kinds", std::move(kinds))
      .set("figures", list_data(accuracy.figures, listed))
      .set("wrong_verdicts", list_data(accuracy.wrong_verdicts, wrong_data));
  return Data::map()
      .set("schema", "zeroplan.accuracy/1")
      .set("version", version)
      .set("inputs", Data::map()
                         .set("files", list_data(inputs.files, [](const auto& file) { return Data(file); }))
                         .set("quality", inputs.qualities))
      .set("result", std::move(result));
}

// ---- tables ----

Cell error_cell(const ErrorStatistics& statistics, double value) {
  return statistics.runs == 0 ? Cell() : Cell(Percent{value});
}

void add_statistics(std::vector<Cell>& row, const ErrorStatistics& statistics) {
  row.emplace_back(whole(statistics.runs));
  for (const double value : {statistics.median, statistics.mean, statistics.percentile_90, statistics.bias}) {
    row.push_back(error_cell(statistics, value));
  }
}

void add_statistics_columns(std::vector<Column>& columns) {
  for (const char* heading : {"scored", "median %", "mean %", "p90 %", "bias %"})
    columns.push_back({heading});
}

void add_table(Report& report, std::string heading, Table table) {
  if (table.rows.empty()) return;
  report.blocks.emplace_back(Heading{std::move(heading)});
  report.blocks.emplace_back(std::move(table));
}

Table sources_table(const Accuracy& accuracy) {
  Table table{
      {{"source", false}, {"runs"}, {"modelled"}, {"memory"}, {"time"}, {"verdicts right"}, {"wrong"}},
      {},
      {}};
  const auto add = [&](const std::string& name, const Score& score) {
    table.rows.push_back({name, whole(score.runs), whole(score.used), whole(score.memory.runs),
                          whole(score.time.runs), whole(score.verdicts.right()),
                          whole(score.verdicts.wrong())});
  };
  for (const Score& score : accuracy.sources) {
    if (score.not_evidence.empty()) add(score.source, score);
  }
  table.rules_before.push_back(table.rows.size());
  add("all", accuracy.total);
  return table;
}

Table memory_table(const Accuracy& accuracy) {
  Table table{{{"source", false}}, {}, {}};
  add_statistics_columns(table.columns);
  const auto add = [&](const std::string& name, const Score& score) {
    add_statistics(table.rows.emplace_back(std::vector<Cell>{name}), score.memory);
  };
  for (const Score& score : accuracy.sources) {
    if (score.not_evidence.empty() && score.memory.runs > 0) add(score.source, score);
  }
  if (table.rows.empty()) return table;
  table.rules_before.push_back(table.rows.size());
  add("all", accuracy.total);
  return table;
}

// Constants that were fitted to the runs, beside constants that were not.
Table times_table(const Accuracy& accuracy) {
  Table table{{{"source", false},
               {"scored"},
               {"shipped: median %"},
               {"p90 %"},
               {"bias %"},
               {"held out: median %"},
               {"p90 %"},
               {"bias %"}},
              {},
              {}};
  const auto add = [&](const std::string& name, const Score& score) {
    std::vector<Cell>& row = table.rows.emplace_back(std::vector<Cell>{name, whole(score.time.runs)});
    for (const ErrorStatistics* statistics : {&score.time, &score.held_out}) {
      for (const double value : {statistics->median, statistics->percentile_90, statistics->bias}) {
        row.push_back(error_cell(*statistics, value));
      }
    }
  };
  for (const Score& score : accuracy.sources) {
    if (score.not_evidence.empty() && score.time.runs > 0) add(score.source, score);
  }
  if (table.rows.empty()) return table;
  table.rules_before.push_back(table.rows.size());
  add("all", accuracy.total);
  return table;
}

// Runs that a prediction was made from, and so say nothing about it.
void add_not_evidence(Report& report, const Accuracy& accuracy) {
  Table table{{{"source", false}, {"runs"}, {"modelled"}}, {}, {}};
  add_statistics_columns(table.columns);
  std::vector<std::string> reasons;
  for (const Score& score : accuracy.sources) {
    if (score.not_evidence.empty()) continue;
    std::vector<Cell>& row =
        table.rows.emplace_back(std::vector<Cell>{score.source, whole(score.runs), whole(score.used)});
    add_statistics(row, score.time);
    reasons.push_back(fmt::format("{}: {}.", score.source, score.not_evidence));
  }
  if (table.rows.empty()) return;
  add_table(report, "Step times that are not counted as evidence", std::move(table));
  for (std::string& reason : reasons) report.blocks.emplace_back(Paragraph{std::move(reason)});
}

std::string percent(double fraction) { return cell_text(Percent{fraction}); }

std::string statistics_text(const ErrorStatistics& statistics) {
  return fmt::format("median {} %, p90 {} %, bias {} %", percent(statistics.median),
                     percent(statistics.percentile_90), percent(statistics.bias));
}

// What to say of it in a sentence each.
void add_in_short(Report& report, const Score& total) {
  if (total.memory.runs > 0) {
    report.blocks.emplace_back(Paragraph{fmt::format(
        "Memory: {}, {}.", counted(whole(total.memory.runs), "figure"), statistics_text(total.memory))});
  }
  if (total.time.runs == 0) return;
  report.blocks.emplace_back(Paragraph{
      fmt::format("Step time: {}. Shipped: {}. Held out: {}.", counted(whole(total.time.runs), "figure"),
                  statistics_text(total.time), statistics_text(total.held_out))});
  report.blocks.emplace_back(Paragraph{fmt::format(
      "Shipped: with the constants that everybody uses. They are fitted to the published runs, "
      "of which these errors are in sample. Held out: with constants fitted to the published runs "
      "of other configurations alone (shape of a layer, GPU, node, engine), in {} folds.",
      accuracy::kFolds)});
}

Table groups_table(const Accuracy& accuracy, ErrorStatistics Score::*measure) {
  Table table{{{"source", false}, {"GPU", false}, {"stage", false}, {"runs"}, {"modelled"}}, {}, {}};
  add_statistics_columns(table.columns);
  const auto add = [&](std::vector<Cell> row, const Score& score) {
    row.insert(row.end(), {whole(score.runs), whole(score.used)});
    add_statistics(row, score.*measure);
    table.rows.push_back(std::move(row));
  };
  for (const Score& score : accuracy.groups) {
    if (score.not_evidence.empty() && (score.*measure).runs > 0)
      add({score.source, score.gpu, score.stage}, score);
  }
  if (table.rows.empty()) return table;
  table.rules_before.push_back(table.rows.size());
  add({std::string("all"), std::string(), std::string()}, accuracy.total);
  return table;
}

Table kinds_table(const Accuracy& accuracy) {
  Table table{{{"memory as", false}}, {}, {}};
  add_statistics_columns(table.columns);
  for (const auto& [kind, statistics] : accuracy.memory_kinds) {
    add_statistics(table.rows.emplace_back(std::vector<Cell>{kind}), statistics);
  }
  return table;
}

Table verdicts_table(const VerdictCounts& verdicts) {
  return {{{"the run", false}, {"predicted to fit"}, {"predicted not to"}, {"not said"}},
          {{std::string("ran"), whole(verdicts.ran_predicted_yes), whole(verdicts.ran_predicted_no),
            whole(verdicts.ran_not_said)},
           {std::string("out of memory"), whole(verdicts.out_predicted_yes), whole(verdicts.out_predicted_no),
            whole(verdicts.out_not_said)}},
          {}};
}

Table reasons_table(const Score& score) {
  std::vector<std::pair<std::string, std::size_t>> reasons(score.not_modelled.begin(),
                                                           score.not_modelled.end());
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  Table table{{{"runs"}, {"not modelled because of", false}}, {}, {}};
  for (const auto& [reason, runs] : reasons) table.rows.push_back({whole(runs), reason});
  return table;
}

std::string measured_text(const ScoredFigure& figure) {
  if (figure.low == figure.high) return fmt::format("{:.4g}", figure.low);
  return fmt::format("{:.2f} to {:.2f}", figure.low, figure.high);
}

Table worst_table(const Accuracy& accuracy, Measure measure, std::string_view unit) {
  Table table{{{"run", false},
               {"as", false},
               {fmt::format("predicted {}", unit)},
               {fmt::format("measured {}", unit)},
               {"error %"}},
              {},
              {}};
  for (const ScoredFigure& figure : worst(accuracy, measure)) {
    table.rows.push_back({figure.id, figure.kind, fmt::format("{:.4g}", figure.predicted),
                          measured_text(figure), Percent{figure.error}});
  }
  return table;
}

Table wrong_table(const Accuracy& accuracy) {
  Table table{{{"run", false}, {"it", false}, {"predicted GiB"}, {"capacity GiB"}}, {}, {}};
  for (const WrongVerdict& verdict : accuracy.wrong_verdicts) {
    table.rows.push_back({verdict.id, std::string(verdict.ran ? "ran" : "ran out of memory"),
                          Real{verdict.predicted_gib, 2}, Real{verdict.capacity_gib, 2}});
  }
  return table;
}

}  // namespace

Report accuracy_report(std::string_view version, const AccuracyInputs& inputs, const Accuracy& accuracy) {
  Report report;
  report.data = answer_data(version, inputs, accuracy);
  report.rows = "result.groups";
  report.blocks.emplace_back(Heading{"Predictions against measured runs"});
  report.blocks.emplace_back(Commands{{inputs.command}});
  report.blocks.emplace_back(Paragraph{
      fmt::format("{} runs of quality {} in {}; {} modelled. Errors are (predicted - measured) / measured; "
                  "median, mean and p90 of their size, bias with the sign.",
                  thousands(whole(accuracy.total.runs)), fmt::join(inputs.qualities, " or "),
                  counted(whole(inputs.files.size()), "file"), thousands(whole(accuracy.total.used)))});
  add_in_short(report, accuracy.total);
  add_table(report, "Runs by source", sources_table(accuracy));
  add_table(report, "Step time by source", times_table(accuracy));
  add_table(report, "Memory by source", memory_table(accuracy));
  add_not_evidence(report, accuracy);
  add_table(report, "Memory by source, GPU and ZeRO stage", groups_table(accuracy, &Score::memory));
  add_table(report, "Memory by what was measured", kinds_table(accuracy));
  add_table(report, "Step time by source, GPU and ZeRO stage", groups_table(accuracy, &Score::time));
  add_table(report, "Does it fit?", verdicts_table(accuracy.total.verdicts));
  add_table(report, "Wrong verdicts", wrong_table(accuracy));
  add_table(report, "Worst memory", worst_table(accuracy, Measure::memory, "GiB"));
  add_table(report, "Worst step time", worst_table(accuracy, Measure::time, "s"));
  add_table(report, "Not modelled", reasons_table(accuracy.total));
  return report;
}

}  // namespace zeroplan::reports
