#include <fmt/format.h>

#include <algorithm>

#include "planner/predict/metrics.hpp"
#include "reports/charts.hpp"
#include "reports/command_line.hpp"
#include "reports/keyed_table.hpp"
#include "reports/numbers.hpp"
#include "reports/pages/sections.hpp"
#include "reports/verdict.hpp"

namespace zeroplan::reports {
namespace {

// What a cell says in few letters.
std::string short_text(const Data& row) {
  const std::string verdict = text_at(row, "verdict");
  if (verdict.empty()) return "-";
  if (verdict == "does_not_fit") return "no";
  if (row.find("tokens_per_second")->is_null()) return verdict == "fits" ? "fits" : verdict_word(verdict);
  return short_count(static_cast<std::int64_t>(number_at(row, "tokens_per_second"))) +
         (verdict == "fits" ? "" : "?");
}

}  // namespace

Data what_if_data(const PlanPage& page) {
  Data list = Data::list();
  for (const solve::WhatIf& cell : page.what_if) {
    Data row = Data::map();
    row.set("recompute", describe::name_of(cell.recompute))
        .set("gpus", cell.gpus)
        .set("nodes", cell.nodes)
        .set("micro_batch", cell.micro_batch);
    if (!cell.evaluation) {
      list.add(row.set("verdict", Data()).set("tokens_per_second", Data()));
      continue;
    }
    const solve::Evaluation& found = *cell.evaluation;
    const double tokens_per_second = found.tokens_per_second();
    const bool has_time = tokens_per_second > 0 && found.verdict != predict::Verdict::does_not_fit;
    row.set("verdict", predict::name_of(found.verdict))
        .set("tokens_per_step", found.tokens_per_step)
        .set("tokens_per_second", has_time ? Data(tokens_per_second) : Data());
    if (has_time && page.fit.goal.tokens) {
      predict::TrainingStep step;
      step.seconds = found.time.seconds;
      step.tokens = found.tokens_per_step;
      step.devices = cell.gpus;
      const predict::TrainingMetrics metrics = predict::training_metrics(step, page.fit.goal);
      row.set("days", *metrics.days);
      if (metrics.cost) row.set("cost", *metrics.cost);
    }
    list.add(row.set("command",
                     command_line("fit", page.fit.model_argument, page.fit.hardware_argument, cell.options)));
  }
  return list;
}

void add_what_if(std::vector<Block>& blocks, const Data& data) {
  const Data::List& rows = list_at(data, "what_if");
  if (rows.empty()) return;
  std::vector<HeatCell> cells;
  std::size_t fitting = 0;
  for (const Data& row : rows) {
    const Data* speed = row.find("tokens_per_second");
    const bool fits = text_at(row, "verdict") == "fits" || text_at(row, "verdict") == "fits_tightly";
    fitting += fits ? 1 : 0;
    const std::optional<double> value = speed->is_null() ? std::nullopt : std::optional(number_of(*speed));
    cells.push_back({"recompute: " + text_at(row, "recompute"),
                     counted(static_cast<std::int64_t>(number_at(row, "gpus")), "GPU"),
                     fmt::format("{}", number_at(row, "micro_batch")), value, short_text(row)});
  }
  std::vector<KeyedColumn> columns{{{"recompute", false}, "recompute"},
                                   {{"GPUs"}, "gpus"},
                                   {{"micro-batch"}, "micro_batch"},
                                   {{"fits", false},
                                    "",
                                    kPlain,
                                    [](const Data& row) {
                                      return Cell(text_at(row, "verdict").empty()
                                                      ? std::string("not possible")
                                                      : verdict_word(text_at(row, "verdict")));
                                    }},
                                   {{"tokens/s"}, "tokens_per_second", kSignificant}};
  const auto has = [&](const char* key) {
    return std::any_of(rows.begin(), rows.end(), [&](const Data& row) { return row.find(key) != nullptr; });
  };
  if (has("days")) columns.push_back({{"days"}, "days", kSignificant});
  if (has("cost")) columns.push_back({{"cost"}, "cost", kSignificant});
  blocks.emplace_back(Heading{"What if"});
  blocks.emplace_back(
      chart_of("Tokens per second by micro-batch, GPUs and recomputation",
               fmt::format("{} of {} plans fit; grey ones do not, or cannot be. A \"?\" stands "
                           "where it is tight or not known.",
                           fitting, rows.size()),
               heat_chart(cells, "", "sequences per GPU and micro-batch"), table_of(rows, columns)));
}

}  // namespace zeroplan::reports
