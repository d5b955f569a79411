#include "reports/accuracy_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "planner/accuracy/pace.hpp"
#include "reports/keyed_table.hpp"
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

KeyedColumn text(std::string heading, std::string key) {
  return {{std::move(heading), false}, std::move(key)};
}
KeyedColumn number(std::string heading, std::string key) { return {{std::move(heading)}, std::move(key)}; }
KeyedColumn percent(std::string heading, std::string key) {
  return {{std::move(heading)}, std::move(key), kPercent};
}

// The statistics under `key`, with how many figures they are of.
void add_statistics(std::vector<KeyedColumn>& columns, const std::string& key) {
  columns.push_back(number("scored", key + ".runs"));
  columns.push_back(percent("median %", key + ".median"));
  columns.push_back(percent("mean %", key + ".mean"));
  columns.push_back(percent("p90 %", key + ".percentile_90"));
  columns.push_back(percent("bias %", key + ".bias"));
}

// How many verdicts are right, or wrong.
KeyedColumn verdicts(std::string heading, const char* a, const char* b) {
  return {{std::move(heading)}, "", kPlain, [a, b](const Data& row) {
            return static_cast<std::int64_t>(number_at(row, a) + number_at(row, b));
          }};
}

void add_table(Report& report, std::string heading, Table table) {
  if (table.rows.empty()) return;
  report.blocks.emplace_back(Heading{std::move(heading)});
  report.blocks.emplace_back(std::move(table));
}

bool is_evidence(const Data& row) { return row.find("not_evidence")->is_null(); }

// The rows that have figures of `measure` ("" for all rows) and are evidence, and what all of them come to.
Table scores_table(const Data& result, const char* list, const std::vector<KeyedColumn>& columns,
                   const std::string& measure) {
  Table table = table_of(list_at(result, list), columns, [&](const Data& row) {
    return is_evidence(row) && (measure.empty() || number_at(row, measure + ".runs") > 0);
  });
  if (table.rows.empty() && !measure.empty()) return table;
  table.rules_before.push_back(table.rows.size());
  table.rows.push_back(row_of(*result.find("total"), columns));
  table.rows.back().front() = std::string("all");
  return table;
}

Table sources_table(const Data& result) {
  return scores_table(
      result, "sources",
      {text("source", "source"), number("runs", "runs"), number("modelled", "used"),
       number("memory", "memory.runs"), number("time", "time.runs"),
       verdicts("verdicts right", "verdicts.ran_predicted_yes", "verdicts.out_of_memory_predicted_no"),
       verdicts("wrong", "verdicts.ran_predicted_no", "verdicts.out_of_memory_predicted_yes")},
      "");
}

Table memory_table(const Data& result) {
  std::vector<KeyedColumn> columns{text("source", "source")};
  add_statistics(columns, "memory");
  return scores_table(result, "sources", columns, "memory");
}

// Constants that were fitted to the runs, beside constants that were not.
Table times_table(const Data& result) {
  return scores_table(
      result, "sources",
      {text("source", "source"), number("scored", "time.runs"), percent("shipped: median %", "time.median"),
       percent("p90 %", "time.percentile_90"), percent("bias %", "time.bias"),
       percent("held out: median %", "held_out_time.median"), percent("p90 %", "held_out_time.percentile_90"),
       percent("bias %", "held_out_time.bias")},
      "time");
}

Table groups_table(const Data& result, const std::string& measure) {
  std::vector<KeyedColumn> columns{text("source", "source"), text("GPU", "gpu"), text("stage", "zero_stage"),
                                   number("runs", "runs"), number("modelled", "used")};
  add_statistics(columns, measure);
  return scores_table(result, "groups", columns, measure);
}

// Runs that a prediction was made from, and so say nothing about it.
void add_not_evidence(Report& report, const Data& result) {
  std::vector<KeyedColumn> columns{text("source", "source"), number("runs", "runs"),
                                   number("modelled", "used")};
  add_statistics(columns, "time");
  const Data::List& sources = list_at(result, "sources");
  const auto is_none = [](const Data& row) { return !is_evidence(row); };
  add_table(report, "Step times that are not counted as evidence", table_of(sources, columns, is_none));
  for (const Data& source : sources) {
    if (is_evidence(source)) continue;
    report.blocks.emplace_back(
        Paragraph{fmt::format("{}: {}.", text_at(source, "source"), text_at(source, "not_evidence"))});
  }
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

Table kinds_table(const Data& result) {
  std::vector<KeyedColumn> columns{text("memory as", "kind")};
  add_statistics(columns, "memory");
  return table_of(list_at(result, "memory_kinds"), columns);
}

Table verdicts_table(const Data& verdicts) {
  Table table{{{"the run", false}, {"predicted to fit"}, {"predicted not to"}, {"not said"}}, {}, {}};
  for (const std::string run : {"ran", "out_of_memory"}) {
    table.rows.push_back({spaced(run), cell_at(verdicts, run + "_predicted_yes", kPlain),
                          cell_at(verdicts, run + "_predicted_no", kPlain),
                          cell_at(verdicts, run + "_not_said", kPlain)});
  }
  return table;
}

Table reasons_table(Data::List reasons) {
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const Data& a, const Data& b) { return number_at(a, "runs") > number_at(b, "runs"); });
  return table_of(reasons, {number("runs", "runs"), text("not modelled because of", "reason")});
}

std::string measured_text(const Data& figure) {
  const double low = number_at(figure, "measured_low"), high = number_at(figure, "measured_high");
  return low == high ? fmt::format("{:.4g}", low) : fmt::format("{:.2f} to {:.2f}", low, high);
}

// The first ones of a measure that are off; `figures` has the largest error first.
Table worst_table(const Data& result, Measure measure, std::string_view unit) {
  std::size_t count = 0;
  const auto is_worst = [&](const Data& figure) {
    return text_at(figure, "measure") == name_of(measure) && number_at(figure, "error") != 0 &&
           count++ < kWorst;
  };
  return table_of(list_at(result, "figures"),
                  {text("run", "id"),
                   text("as", "kind"),
                   {{fmt::format("predicted {}", unit)},
                    "",
                    kPlain,
                    [](const Data& row) { return fmt::format("{:.4g}", number_at(row, "predicted")); }},
                   {{fmt::format("measured {}", unit)}, "", kPlain, measured_text},
                   percent("error %", "error")},
                  is_worst);
}

Table wrong_table(const Data& result) {
  return table_of(list_at(result, "wrong_verdicts"),
                  {text("run", "id"),
                   {{"it", false},
                    "",
                    kPlain,
                    [](const Data& row) {
                      return std::string(*row.find("ran")->as<bool>() ? "ran" : "ran out of memory");
                    }},
                   {{"predicted GiB"}, "predicted_gib", decimals(2)},
                   {{"capacity GiB"}, "capacity_gib", decimals(2)}});
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
  const Data& result = *report.data.find("result");
  add_table(report, "Runs by source", sources_table(result));
  add_table(report, "Step time by source", times_table(result));
  add_table(report, "Memory by source", memory_table(result));
  add_not_evidence(report, result);
  add_table(report, "Memory by source, GPU and ZeRO stage", groups_table(result, "memory"));
  add_table(report, "Memory by what was measured", kinds_table(result));
  add_table(report, "Step time by source, GPU and ZeRO stage", groups_table(result, "time"));
  add_table(report, "Does it fit?", verdicts_table(*result.find("total.verdicts")));
  add_table(report, "Wrong verdicts", wrong_table(result));
  add_table(report, "Worst memory", worst_table(result, Measure::memory, "GiB"));
  add_table(report, "Worst step time", worst_table(result, Measure::time, "s"));
  add_table(report, "Not modelled", reasons_table(list_at(result, "total.not_modelled")));
  return report;
}

}  // namespace zeroplan::reports
