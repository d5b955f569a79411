#include "reports/validation_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "reports/gpu_samples.hpp"
#include "reports/keyed_table.hpp"
#include "reports/numbers.hpp"

namespace zeroplan::reports {
namespace {

constexpr double kGiga = 1e9;
constexpr double kMilli = 1e-3;
constexpr std::size_t kInstructionsShown = 8;
constexpr std::size_t kStepsShown = 32;

// A figure's number in the row's unit.
Cell number_in(const std::string& unit, double value) {
  if (unit == "flop") return Real{value / kGiga, 3};
  if (unit.empty()) return Real{value, 6};
  return static_cast<std::int64_t>(std::llround(value));
}

KeyedColumn figure_column(std::string heading, std::string key) {
  return {{std::move(heading)}, {}, {}, [key = std::move(key)](const Data& row) {
            return number_in(text_at(row, "unit"), number_at(row, key));
          }};
}

Cell tolerance_of(const Data& row) {
  const std::string unit = text_at(row, "unit");
  const double below = number_at(row, "tolerance_below"), above = number_at(row, "tolerance_above");
  const auto text = [&](double value) { return cell_text(number_in(unit, value)); };
  if (below == above) return text(above);
  const auto side = [&](double value) {
    if (value == 0) return std::string("0");
    return unit.empty() ? fmt::format("{:.2g}", value) : text(value);
  };
  return fmt::format("-{} +{}", side(below), side(above));
}

Cell title_of(const Data& row) { return spaced(text_at(row, "title")); }

// Seconds in milliseconds, a share in percent.
KeyedColumn time_column(std::string heading, std::string key) {
  return {{std::move(heading)}, {}, {}, [key = std::move(key)](const Data& row) {
            const bool is_share = text_at(row, "unit") == "share";
            return cell_at(row, key, is_share ? kPercent : decimals(1, kMilli));
          }};
}

}  // namespace

Table comparison_table(const Data& validation) {
  const std::vector<KeyedColumn> columns{{{"Per GPU", false}, {}, {}, title_of},
                                         {{"unit", false},
                                          {},
                                          {},
                                          [](const Data& row) -> Cell {
                                            const std::string unit = text_at(row, "unit");
                                            return unit == "flop" ? "GFLOP" : unit;
                                          }},
                                         figure_column("predicted", "predicted"),
                                         figure_column("measured", "measured"),
                                         figure_column("difference", "difference"),
                                         {{"tolerance"}, {}, {}, tolerance_of},
                                         {{"ok", false}, {}, {}, [](const Data& row) -> Cell {
                                            const bool* ok = row.find("ok")->as<bool>();
                                            return ok != nullptr && *ok ? "yes" : "NO";
                                          }}};
  Table table = table_of(list_at(validation, "comparison"), columns,
                         [](const Data& row) { return text_at(row, "unit") != "text"; });
  table.rules_before.push_back(table.rows.size());
  const auto measured = [&](const char* title, const char* unit, std::string_view key, CellFormat format) {
    table.rows.push_back(
        {std::string(title), std::string(unit), {}, cell_at(validation, key, format), {}, {}, {}});
  };
  measured("step", "ms", "measured.step_seconds", decimals(1, kMilli));
  measured("speed, all ranks", "tokens/s", "measured.tokens_per_second", decimals(0));
  measured("speed, model", "TFLOPS", "measured.model_tflops_per_gpu", decimals(4));
  measured("speed, hardware", "TFLOPS", "measured.hardware_tflops_per_gpu", decimals(4));
  constexpr std::size_t kMeasuredColumn = 3;
  add_gpu_rows(table, *validation.find("measured.slowest_gpu"), columns.size(), kMeasuredColumn);
  return table;
}

Table compared_times_table(const Data& validation) {
  return table_of(list_at(validation, "times"),
                  {{{"Time of a step", false}, "title"},
                   {{"unit", false},
                    {},
                    {},
                    [](const Data& row) -> Cell { return text_at(row, "unit") == "share" ? "%" : "ms"; }},
                   time_column("predicted", "predicted"),
                   time_column("measured", "measured"),
                   {{"off by %"}, "relative_error", kPercent}});
}

Table steps_table(const Data& validation) {
  const double tokens = number_at(validation, "measured.tokens_per_step");
  const Data::List& steps = list_at(validation, "measured.steps");
  const std::size_t shown = std::min(steps.size(), kStepsShown);
  Data::List rows;
  rows.reserve(shown);
  for (std::size_t row = 0; row < shown; ++row) {
    rows.push_back(steps[shown < 2 ? row : row * (steps.size() - 1) / (shown - 1)]);
  }
  return table_of(
      rows, {{{"step"}, "step"},
             {{"loss"}, "loss", decimals(4)},
             {{"gradient norm"}, "gradient_norm", decimals(4)},
             {{"rate"},
              {},
              {},
              [](const Data& row) -> Cell { return fmt::format("{:g}", number_at(row, "learning_rate")); }},
             {{"ms"}, "seconds", decimals(1, kMilli)},
             {{"tokens/s"},
              {},
              {},
              [tokens](const Data& row) -> Cell {
                return Real{tokens / number_at(row, "seconds"), 0};
              }},
             {{"", false}, {}, {}, [](const Data& row) -> Cell {
                if (*row.find("skipped")->as<bool>()) {
                  return fmt::format("skipped: overflow at scale {:g}", number_at(row, "loss_scale"));
                }
                return *row.find("warm_up")->as<bool>() ? "warm-up" : "";
              }}});
}

Table instructions_table(const Data& validation) {
  const Data::List& all = list_at(validation, "measured.instructions");
  const auto seconds_of = [](const Data& row) { return number_at(row, "seconds"); };
  double sum = 0;
  bool has_waiting = false;
  for (const Data& row : all) {
    sum += seconds_of(row);
    has_waiting = has_waiting || number_at(row, "waiting_seconds") > 0;
  }
  Data::List largest = all;
  std::sort(largest.begin(), largest.end(),
            [&](const Data& a, const Data& b) { return seconds_of(a) > seconds_of(b); });
  largest.resize(std::min(largest.size(), kInstructionsShown));
  const double steps = std::max(1.0, number_at(validation, "measured.steps_measured"));
  std::vector<KeyedColumn> columns{{{"Time of rank 0", false},
                                    {},
                                    {},
                                    [](const Data& row) -> Cell {
                                      const std::string group = text_at(row, "group");
                                      return spaced(group.empty()
                                                        ? text_at(row, "instruction")
                                                        : group + " " + text_at(row, "instruction"));
                                    }},
                                   {{"calls"},
                                    {},
                                    {},
                                    [steps](const Data& row) -> Cell {
                                      return static_cast<std::int64_t>(number_at(row, "calls") / steps);
                                    }},
                                   {{"ms a step"}, "seconds", decimals(2, kMilli * steps)},
                                   {{"share"}, {}, {}, [sum, seconds_of](const Data& row) -> Cell {
                                      return Percent{sum > 0 ? seconds_of(row) / sum : 0};
                                    }}};
  if (has_waiting) {
    columns.push_back({{"waiting ms"}, {}, {}, [steps](const Data& row) -> Cell {
                         if (row.find("group")->is_null()) return {};
                         return cell_at(row, "waiting_seconds", decimals(2, kMilli * steps));
                       }});
  }
  return table_of(largest, columns);
}

}  // namespace zeroplan::reports
