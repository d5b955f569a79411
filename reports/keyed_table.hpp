#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "reports/report.hpp"

// Tables from an answer's data, by key: what a table shows is what the other formats say.
namespace zeroplan::reports {

// How the value under a key is shown.
struct CellFormat {
  enum class Kind {
    plain,        // texts, whole numbers with commas, yes and no
    gibibytes,    // of bytes
    gigabytes,    // of bytes
    percent,      // of a fraction
    decimals,     // a number of them
    significant,  // four digits, as many decimals as that takes
  };
  Kind kind = Kind::plain;
  int decimals = 2;
  double unit = 1;  // the value is shown in multiples of it
  bool blank_at_zero = false;
};
inline constexpr CellFormat kPlain{};
inline constexpr CellFormat kGibibytes{CellFormat::Kind::gibibytes};
inline constexpr CellFormat kGigabytes{CellFormat::Kind::gigabytes};
inline constexpr CellFormat kPercent{CellFormat::Kind::percent};
inline constexpr CellFormat kSignificant{CellFormat::Kind::significant};
constexpr CellFormat decimals(int count, double unit = 1) {
  return {CellFormat::Kind::decimals, count, unit};
}

// The cell of a value; empty for null and for what is not there.
Cell cell_of(const Data* value, const CellFormat& format);
Cell cell_at(const Data& map, std::string_view dotted, const CellFormat& format);

// A column, and what a row has in it: the value under a dotted key of the row's map, or what `cell` makes of the map.
struct KeyedColumn {
  Column column;
  std::string key{};
  CellFormat format = kPlain;
  std::function<Cell(const Data& row)> cell{};
};

// The rows of maps that are in a list; `keep` (none: all) says which.
Table table_of(const Data::List& rows, const std::vector<KeyedColumn>& columns,
               const std::function<bool(const Data& row)>& keep = {});
std::vector<Cell> row_of(const Data& map, const std::vector<KeyedColumn>& columns);

// A number with the decimals that give `scale`, or itself, four digits; whole from 1,000 on.
Cell four_digits(double value, double scale);
Cell four_digits(double value);

}  // namespace zeroplan::reports
