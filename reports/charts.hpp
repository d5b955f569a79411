#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reports/report.hpp"

// Four kinds of charts, as Vega 5 specifications: data in, JSON out. A page sets the width; heights follow from what is shown.
// Texts keep their size, colours follow the page's, and one colour belongs to one category everywhere.
namespace zeroplan::reports {

// A specification, and those of the shades that it uses, in their order.
struct Drawing {
  std::string specification;
  std::vector<Shade> legend;
};
inline Chart chart_of(std::string title, std::string alternative, Drawing drawing, Table table) {
  return {std::move(title), std::move(alternative), std::move(drawing.specification),
          std::move(drawing.legend), std::move(table)};
}

// Parts are stacked and listed in the order of their shades, whose colours are to be seen on white and on black.

// Categories of memory as figures name them, then "overhead".
const std::vector<Shade>& memory_shades();

// A line across the values, with its name: a capacity.
struct Mark {
  double value = 0;
  std::string name;
};

// Horizontal bars of parts. A part begins where the one before it ended, or at `start`.
struct Bar {
  std::string name;  // bars of one name are one bar
  std::string part;  // of the shades
  double value = 0;
  std::optional<double> start;
};
Drawing bars_chart(const std::vector<Bar>& bars, const std::vector<Shade>& shades,
                   const std::vector<Mark>& marks, std::string_view unit);

// Over time: a stack of levels, each held until the next one begins, with a line for the capacity and the peak named. Marks and
// the peak are in `unit`, which has `unit_bytes`.
struct Level {
  double time = 0;
  std::vector<std::int64_t> values;  // bytes, by the shades
};
Drawing levels_chart(const std::vector<Level>& levels, double end, const std::vector<Shade>& shades,
                     const std::vector<Mark>& marks, const Mark& peak, double peak_time,
                     std::string_view time_unit, std::string_view unit, std::int64_t unit_bytes);

// Over time: what runs on each lane.
struct Span {
  std::string lane, name;
  std::string kind;  // of the shades
  double start = 0, end = 0;
};
Drawing spans_chart(const std::vector<Span>& spans, const std::vector<std::string>& lanes,
                    const std::vector<Shade>& shades, std::string_view time_unit);

// Small tables of coloured cells side by side; a cell without a value is greyed and has its text only.
struct HeatCell {
  std::string panel, row, column;
  std::optional<double> value;
  std::string text;
};
Drawing heat_chart(const std::vector<HeatCell>& cells, std::string_view row_title,
                   std::string_view column_title);

}  // namespace zeroplan::reports
