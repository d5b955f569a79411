#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "planner/describe/text/document.hpp"
#include "planner/describe/text/quantity.hpp"

namespace zeroplan::describe {
namespace {

constexpr std::size_t kMaximumUnknownTold = 20;

std::string shown(const Value& value) {
  switch (value.kind) {
    case Value::Kind::null:
      return "nothing";
    case Value::Kind::scalar:
      return quoted(value.text);
    case Value::Kind::list:
      return "a list";
    case Value::Kind::map:
      return "a map";
  }
  return "";
}

std::string with_nearest(std::string message, const std::string& nearest) {
  return nearest.empty() ? message : fmt::format("{}; nearest: {}", message, nearest);
}

}  // namespace

MapReader::MapReader(const Value& map, std::string source, std::string path, Problems& problems)
    : source_(std::move(source)), path_(std::move(path)), problems_(problems) {
  if (map.kind == Value::Kind::map) {
    map_ = &map;
  } else {
    problems_.add(
        {source_, map.line, path_, fmt::format("found {}, expected a map of keys and values", shown(map))});
  }
}

std::string MapReader::dotted(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void MapReader::ignore(std::string_view key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.emplace_back(key);
}

const Value* MapReader::any(std::string_view key) {
  ignore(key);
  return map_ == nullptr ? nullptr : map_->find(key);
}

bool MapReader::has(std::string_view key) {
  const Value* value = any(key);
  return value != nullptr && value->kind != Value::Kind::null;
}

const Value* MapReader::take(std::string_view key, Value::Kind kind, std::string_view expected) {
  const Value* value = any(key);
  if (value == nullptr || value->kind == Value::Kind::null) return nullptr;
  if (value->kind == kind) return value;
  problem(key, fmt::format("found {}, expected {}", shown(*value), expected));
  return nullptr;
}

const Value* MapReader::map(std::string_view key) {
  return take(key, Value::Kind::map, "a map of keys and values");
}

const Value* MapReader::list(std::string_view key) { return take(key, Value::Kind::list, "a list"); }

std::optional<std::int64_t> MapReader::integer(std::string_view key, std::int64_t minimum,
                                               std::int64_t maximum) {
  const Value* value = take(key, Value::Kind::scalar, "a whole number");
  if (value == nullptr) return std::nullopt;
  try {
    return parse_integer(value->text, minimum, maximum);
  } catch (const std::invalid_argument& error) {
    problem(key, error.what());
    return std::nullopt;
  }
}

std::optional<std::int64_t> MapReader::count(std::string_view key, std::int64_t minimum,
                                             std::int64_t maximum) {
  const Value* value = take(key, Value::Kind::scalar, "a count such as 125k, 340M, 7.5B or 1T");
  if (value == nullptr) return std::nullopt;
  try {
    return parse_count(value->text, minimum, maximum);
  } catch (const std::invalid_argument& error) {
    problem(key, error.what());
    return std::nullopt;
  }
}

std::optional<double> MapReader::real(std::string_view key, double minimum, double maximum) {
  const Value* value = take(key, Value::Kind::scalar, "a number");
  if (value == nullptr) return std::nullopt;
  try {
    return parse_real(value->text, minimum, maximum);
  } catch (const std::invalid_argument& error) {
    problem(key, error.what());
    return std::nullopt;
  }
}

std::optional<bool> MapReader::boolean(std::string_view key) {
  const Value* value = take(key, Value::Kind::scalar, "true or false");
  if (value == nullptr) return std::nullopt;
  try {
    return parse_boolean(value->text);
  } catch (const std::invalid_argument& error) {
    problem(key, error.what());
    return std::nullopt;
  }
}

std::optional<Bytes> MapReader::bytes(std::string_view key) {
  const Value* value = take(key, Value::Kind::scalar, "a size such as 32GB or 31.75GiB");
  if (value == nullptr) return std::nullopt;
  try {
    return parse_bytes(value->text);
  } catch (const std::invalid_argument& error) {
    problem(key, error.what());
    return std::nullopt;
  }
}

std::optional<std::string> MapReader::string(std::string_view key) {
  const Value* value = take(key, Value::Kind::scalar, "text");
  if (value == nullptr) return std::nullopt;
  return value->text;
}

std::optional<std::size_t> MapReader::one_of(std::string_view key, const std::vector<std::string>& names) {
  const std::string expected = fmt::format("one of {}", fmt::join(names, ", "));
  const Value* value = take(key, Value::Kind::scalar, expected);
  if (value == nullptr) return std::nullopt;
  const auto found = std::find(names.begin(), names.end(), value->text);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  problem(key, with_nearest(fmt::format("found {}, expected {}", quoted(value->text), expected),
                            nearest_name(value->text, names)));
  return std::nullopt;
}

void MapReader::missing(std::string_view key, std::string_view expected) {
  if (map_ == nullptr || has(key)) return;
  problem(key, fmt::format("missing, expected {}", expected));
}

void MapReader::problem(std::string_view key, std::string message) {
  int line = 0;
  if (map_ != nullptr) {
    const Value* value = map_->find(key);
    line = value != nullptr ? value->line : map_->line;
  }
  problems_.add({source_, line, dotted(key), std::move(message)});
}

void MapReader::finish() {
  if (map_ == nullptr || allow_unknown_) return;
  std::size_t unknown = 0;
  for (const Entry& entry : map_->entries) {
    if (std::find(known_.begin(), known_.end(), entry.key) != known_.end()) continue;
    if (++unknown > kMaximumUnknownTold) continue;
    const std::string nearest = nearest_name(entry.key, known_);
    problems_.add({source_, entry.line, dotted(entry.key),
                   nearest.empty() ? fmt::format("unknown key, expected one of {}", fmt::join(known_, ", "))
                                   : with_nearest("unknown key", nearest)});
  }
  if (unknown > kMaximumUnknownTold) {
    problems_.add(
        {source_, map_->line, path_, fmt::format("{} more unknown keys", unknown - kMaximumUnknownTold)});
  }
}

}  // namespace zeroplan::describe
