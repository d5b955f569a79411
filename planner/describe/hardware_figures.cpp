#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "planner/describe/hardware_reader.hpp"

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
