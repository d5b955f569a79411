#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "planner/describe/machine/hardware_reader.hpp"
#include "planner/describe/text/quantity.hpp"

namespace zeroplan::describe {
namespace {

constexpr std::array<std::pair<std::string_view, double>, 5> kByteUnits{
    {{"_bytes", 1}, {"_mb", 1e6}, {"_gb", 1e9}, {"_mib", 0x1p20}, {"_gib", 0x1p30}}};
constexpr double kLargestBytes = 0x1p50;

std::optional<double> read_number(MapReader& reader, std::string_view key, FigureRange range) {
  const std::optional<double> value = reader.real(key, range.minimum, range.maximum);
  if (value && range.whole && *value != std::floor(*value)) {
    reader.problem(key, fmt::format("found {}, expected a whole number", *value));
    return std::nullopt;
  }
  return value;
}

}  // namespace

std::optional<Figure> read_figure(MapReader& reader, std::string_view key, FigureRange range) {
  const Value* value = reader.any(key);
  if (value == nullptr || value->kind == Value::Kind::null) return std::nullopt;
  if (value->kind == Value::Kind::scalar) {
    const std::optional<double> number = read_number(reader, key, range);
    if (!number) return std::nullopt;
    return Figure{.value = *number, .source = reader.source(), .note = {}, .assumed = false};
  }
  if (value->kind == Value::Kind::list) {
    reader.problem(key, "found a list, expected a number or {value: NUMBER, source: TEXT}");
    return std::nullopt;
  }
  MapReader figure(*value, reader.source(), reader.dotted(key), reader.problems());
  Figure result;
  const std::optional<double> number = read_number(figure, "value", range);
  if (value->find("value") == nullptr) figure.missing("value", "a number, or null where none is known");
  const std::optional<std::string> source = figure.string("source");
  figure.missing("source", "where the figure comes from");
  result.source = source.value_or("");
  result.note = figure.string("note").value_or("");
  result.assumed = figure.boolean("assumed").value_or(false);
  figure.finish();
  if (!number) return std::nullopt;
  result.value = *number;
  return result;
}

std::optional<Figure> read_bytes_figure(MapReader& reader, std::string_view stem, Bytes minimum) {
  std::optional<Figure> result;
  std::string first;
  for (const auto& [suffix, unit] : kByteUnits) {
    const std::string key = fmt::format("{}{}", stem, suffix);
    if (!reader.has(key)) continue;
    if (!first.empty()) {
      reader.ignore(key);
      reader.problem(key, fmt::format("the same size as {}, expected one of the two", first));
      continue;
    }
    first = key;
    result = read_figure(reader, key, {.minimum = 0, .maximum = kLargestBytes / unit});
    if (!result) continue;
    result->value = std::round(result->value * unit);
    if (result->value < static_cast<double>(minimum)) {
      reader.problem(key, fmt::format("found {:.0f} bytes, expected at least {}", result->value, minimum));
      result.reset();
    }
  }
  return result;
}

std::vector<double> read_numbers(MapReader& reader, std::string_view key, FigureRange range,
                                 std::string_view expected) {
  const Value* value = reader.any(key);
  if (value == nullptr || value->kind == Value::Kind::null) {
    reader.missing(key, expected);
    return {};
  }
  if (value->kind == Value::Kind::scalar) {
    const std::optional<double> number = read_number(reader, key, range);
    return number ? std::vector{*number} : std::vector<double>{};
  }
  const auto is_number = [](const Value& item) { return item.kind == Value::Kind::scalar && !item.quoted; };
  if (value->kind != Value::Kind::list || value->items.empty() ||
      !std::all_of(value->items.begin(), value->items.end(), is_number)) {
    reader.problem(key, "expected a number, or a list of numbers");
    return {};
  }
  std::vector<double> numbers;
  numbers.reserve(value->items.size());
  for (const Value& item : value->items) {
    try {
      numbers.push_back(parse_real(item.text, range.minimum, range.maximum));
    } catch (const std::invalid_argument& error) {
      reader.problem(key, error.what());
      return {};
    }
  }
  return numbers;
}

const std::vector<std::string>& type_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (std::size_t i = 0; i < program::kDataTypes; ++i) {
      list.emplace_back(program::name_of(static_cast<program::DataType>(i)));
    }
    return list;
  }();
  return names;
}

Heading read_heading(MapReader& reader) {
  Heading heading;
  const std::optional<std::string> name = reader.string("name");
  reader.missing("name", "a name");
  if (name && name->empty()) reader.problem("name", "found an empty text, expected a name");
  heading.name = name.value_or("");
  heading.title = reader.string("title").value_or(heading.name);
  if (const Value* aliases = reader.list("aliases")) {
    for (const Value& alias : aliases->items) {
      if (alias.kind != Value::Kind::scalar) reader.problem("aliases", "expected a list of names");
    }
  }
  return heading;
}

}  // namespace zeroplan::describe
