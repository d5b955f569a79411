#include "reports/keyed_table.hpp"

#include <algorithm>
#include <cmath>

namespace zeroplan::reports {

Cell cell_of(const Data* value, const CellFormat& format) {
  using Kind = CellFormat::Kind;
  if (value == nullptr || value->is_null()) return {};
  if (format.kind == Kind::plain) {
    if (const auto* text = value->as<std::string>()) return *text;
    if (const auto* integer = value->as<std::int64_t>()) return *integer;
    if (const auto* boolean = value->as<bool>()) return std::string(*boolean ? "yes" : "no");
    return {};
  }
  const double number = number_of(*value);
  if (format.blank_at_zero && number == 0) return {};
  switch (format.kind) {
    case Kind::gibibytes:
      return Gibibytes{number};
    case Kind::gigabytes:
      return Gigabytes{number};
    case Kind::percent:
      return Percent{number};
    case Kind::significant:
      return four_digits(number / format.unit);
    default:
      return Real{number / format.unit, format.decimals};
  }
}

Cell cell_at(const Data& map, std::string_view dotted, const CellFormat& format) {
  return cell_of(map.find(dotted), format);
}

std::vector<Cell> row_of(const Data& map, const std::vector<KeyedColumn>& columns) {
  std::vector<Cell> row;
  row.reserve(columns.size());
  for (const KeyedColumn& column : columns) {
    row.push_back(column.cell ? column.cell(map) : cell_at(map, column.key, column.format));
  }
  return row;
}

Table table_of(const Data::List& rows, const std::vector<KeyedColumn>& columns,
               const std::function<bool(const Data& row)>& keep) {
  Table table;
  table.columns.reserve(columns.size());
  for (const KeyedColumn& column : columns) table.columns.push_back(column.column);
  for (const Data& row : rows) {
    if (!keep || keep(row)) table.rows.push_back(row_of(row, columns));
  }
  return table;
}

Cell four_digits(double value, double scale) {
  constexpr double kWholeFrom = 1000;
  constexpr int kDigits = 3;  // behind the first one
  constexpr int kMostDecimals = 6;
  if (std::abs(scale) >= kWholeFrom) return static_cast<std::int64_t>(std::llround(value));
  const int magnitude = scale == 0 ? 0 : static_cast<int>(std::floor(std::log10(std::abs(scale))));
  return Real{value, std::clamp(kDigits - magnitude, 0, kMostDecimals)};
}

Cell four_digits(double value) { return four_digits(value, value); }

}  // namespace zeroplan::reports
