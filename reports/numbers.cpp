#include "reports/numbers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/report.hpp"

namespace zeroplan::reports {
namespace {

struct CellText {
  std::string operator()(std::monostate) const { return {}; }
  std::string operator()(const std::string& text) const { return text; }
  std::string operator()(std::int64_t value) const { return thousands(value); }
  std::string operator()(Gibibytes value) const {
    return fmt::format("{:.2f}", value.bytes / static_cast<double>(kGiB));
  }
  std::string operator()(Gigabytes value) const { return fmt::format("{:.2f}", value.bytes / kGB); }
  std::string operator()(Percent value) const { return fmt::format("{:.1f}", value.fraction * 100); }
  std::string operator()(Real value) const { return fmt::format("{:.{}f}", value.value, value.decimals); }
};

}  // namespace

std::string thousands(std::int64_t value) {
  std::string digits = std::to_string(value);
  const std::ptrdiff_t first = value < 0 ? 1 : 0;
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > first; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return digits;
}

std::string shortest(double value) {
  if (!std::isfinite(value)) return "null";
  std::string text = fmt::format("{}", value);
  if (text.find('.') == std::string::npos) text.insert(std::min(text.find('e'), text.size()), ".0");
  return text;
}

std::string counted(std::int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", thousands(count), noun, count == 1 ? "" : "s");
}

std::string short_count(std::int64_t count) {
  struct Scale {
    double unit;
    char letter;
  };
  const auto value = static_cast<double>(count);
  for (const Scale scale : {Scale{1e12, 'T'}, Scale{1e9, 'B'}, Scale{1e6, 'M'}, Scale{1e3, 'k'}}) {
    if (value >= scale.unit) return fmt::format("{:.3g}{}", value / scale.unit, scale.letter);
  }
  return std::to_string(count);
}

std::string cell_text(const Cell& cell) { return std::visit(CellText{}, cell); }

std::string spaced(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

}  // namespace zeroplan::reports
