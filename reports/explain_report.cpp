#include "reports/explain_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/inputs.hpp"
#include "reports/keyed_table.hpp"
#include "reports/numbers.hpp"

namespace zeroplan::reports {
namespace {

const ExplainKey& find_key(const std::string& name) {
  const std::vector<ExplainKey>& keys = explain_keys();
  return *std::find_if(keys.begin(), keys.end(), [&](const ExplainKey& key) { return key.name == name; });
}

constexpr double kLargestExactInteger = 9007199254740992;  // 2^53

bool is_whole(double value) { return std::abs(value) < kLargestExactInteger && value == std::floor(value); }

Cell value_cell(double value) {
  if (is_whole(value)) return static_cast<std::int64_t>(value);
  return Real{value, std::abs(value) < 1000 ? 6 : 1};
}

Data value_of(const std::string& key, const Data& fit) {
  const Data* model = fit.find("inputs.model");
  for (const Data* place : {fit.find("result"), model}) {
    if (const Data* found = place->find(key)) return *found;
  }
  return {};
}

std::string with_gib(double value, const ExplainKey& key) {
  std::string text = fmt::format("{} = {} {}", key.name, cell_text(value_cell(value)), key.unit);
  if (key.unit == "bytes") {
    text += fmt::format(" ({:.2f} GiB, {:.2f} GB)", value / static_cast<double>(kGiB), value / kGB);
  }
  return text;
}

}  // namespace

Report explain_keys_report(std::string_view version) {
  Report report;
  Data rows = Data::list();
  for (const ExplainKey& key : explain_keys()) {
    rows.add(Data::map().set("key", key.name).set("unit", key.unit).set("what", key.what));
  }
  report.data = Data::map()
                    .set("schema", "zeroplan.explain_keys/1")
                    .set("version", version)
                    .set("keys", std::move(rows));
  report.rows = "keys";
  report.blocks.emplace_back(
      table_of(list_at(report.data, report.rows),
               {{{"key", false}, "key"}, {{"unit", false}, "unit"}, {{"what it is", false}, "what"}}));
  return report;
}

Report explain_report(const std::string& key_name, const FitAnswer& answer) {
  const ExplainKey& key = find_key(key_name);
  const Explanation explanation = explain(key_name, answer.predicted());
  const Data fit = fit_data(answer);
  const Data value = value_of(key_name, fit);
  const double number = number_of(value);

  Report report;
  Data terms = Data::list();
  Table table{{{"term", false}, {"with values", false}, {key.unit}}, {}, {}};
  std::vector<std::string> sources;
  for (const Term& term : explanation.terms) {
    Data row = Data::map().set("name", term.name).set("arithmetic", term.arithmetic).set("value", term.value);
    std::string shown = term.arithmetic;
    if (!term.source.empty()) {
      row.set("source", term.source);
      sources.push_back(fmt::format("[{}] {}", sources.size() + 1, term.source));
      shown = fmt::format("[{}]", sources.size());
    }
    terms.add(std::move(row));
    table.rows.push_back({term.name, shown, value_cell(term.value)});
  }
  table.rules_before = {table.rows.size()};
  table.rows.push_back({key.name, std::string(), value_cell(number)});

  add_inputs(report.blocks, answer.model, answer.resolved);
  report.blocks.emplace_back(Heading{with_gib(number, key)});
  report.blocks.emplace_back(Paragraph{fmt::format("{}: {}.", key.what, explanation.formula)});
  report.blocks.emplace_back(std::move(table));
  for (std::string& source : sources) report.blocks.emplace_back(Paragraph{std::move(source)});
  report.blocks.emplace_back(Paragraph{"Source: " + explanation.source});
  add_assumptions(report.blocks, answer.model, answer.resolved);
  report.data = Data::map()
                    .set("schema", "zeroplan.explain/1")
                    .set("version", answer.version)
                    .set("inputs", *fit.find("inputs"))
                    .set("approximations", *fit.find("approximations"))
                    .set("assumed", *fit.find("assumed"))
                    .set("notes", *fit.find("notes"))
                    .set("result", Data::map()
                                       .set("key", key.name)
                                       .set("unit", key.unit)
                                       .set("value", value)
                                       .set("formula", explanation.formula)
                                       .set("terms", std::move(terms))
                                       .set("source", explanation.source));
  report.rows = "result.terms";
  return report;
}

}  // namespace zeroplan::reports
