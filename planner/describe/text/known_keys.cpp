#include "planner/describe/text/known_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <utility>

namespace zeroplan::describe {
namespace {

constexpr std::size_t kMaximumUnknownTold = 20;
constexpr std::string_view kNothing = "false 0 none no off";

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::optional<double> number(const std::string& text) {
  if (text.empty()) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (*end != '\0') return std::nullopt;
  return value;
}

bool same(const std::string& text, const std::string& word) {
  if (text == word) return true;
  const std::optional<double> left = number(text);
  const std::optional<double> right = number(word);
  return left && right && *left == *right;
}

bool says_one_of(const std::string& text, std::string_view words) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (same(text, lower(words.substr(0, end)))) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

const KnownKey* find_key(std::span<const KnownKey> table, std::string_view name) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const KnownKey& key) { return key.name == name; });
  return found == table.end() ? nullptr : &*found;
}

std::string found_text(const Value& value) {
  switch (value.kind) {
    case Value::Kind::null:
      return "found nothing";
    case Value::Kind::scalar:
      return "found " + quoted(value.text);
    case Value::Kind::list:
      return "found a list";
    case Value::Kind::map:
      return "found a section";
  }
  return "";
}

std::string unknown_text(const MapReader& map, std::span<const KnownKey> table, std::string_view key) {
  std::vector<std::string> names = map.asked();
  for (const KnownKey& known : table) names.emplace_back(known.name);
  const std::string nearest = nearest_name(key, names);
  return fmt::format("not known, and passed over{}{}", nearest.empty() ? "" : "; nearest: ", nearest);
}

}  // namespace

bool is_neutral(const Value& value, std::string_view neutral) {
  switch (value.kind) {
    case Value::Kind::null:
      return true;
    case Value::Kind::scalar: {
      const std::string text = lower(value.text);
      return text.empty() || text == "auto" || text == "null" ||
             says_one_of(text, neutral.empty() ? kNothing : neutral);
    }
    case Value::Kind::list:
      return std::all_of(value.items.begin(), value.items.end(),
                         [&](const Value& item) { return is_neutral(item, neutral); });
    case Value::Kind::map: {
      const Value* enabled = value.find("enabled");
      if (value.entries.empty() || (enabled != nullptr && is_neutral(*enabled, ""))) return true;
      return !neutral.empty() &&
             std::all_of(value.entries.begin(), value.entries.end(),
                         [&](const Entry& entry) { return is_neutral(entry.value, neutral); });
    }
  }
  return false;
}

std::string note_at(const MapReader& map, std::string_view key, std::string text) {
  const Value* value = map.value() == nullptr ? nullptr : map.value()->find(key);
  return Problem{map.source(), value == nullptr ? 0 : value->line, map.dotted(key), std::move(text)}.text();
}

std::span<const KnownKey> keys_of(std::span<const KeyTable> tables, std::string_view section) {
  const auto found = std::find_if(tables.begin(), tables.end(),
                                  [&](const KeyTable& table) { return table.section == section; });
  return found == tables.end() ? std::span<const KnownKey>() : found->keys;
}

void settle_keys(MapReader& map, std::span<const KnownKey> table, AskedKeys asked,
                 std::vector<std::string>& notes, std::vector<LeftOut>* left_out) {
  if (map.value() == nullptr) return;
  const std::vector<std::string> used = map.asked();
  std::size_t unknown = 0;
  for (const Entry& entry : map.value()->entries) {
    const bool was_asked = std::find(used.begin(), used.end(), entry.key) != used.end();
    const KnownKey* known = find_key(table, entry.key);
    if (was_asked && (known == nullptr || asked == AskedKeys::are_used)) continue;
    if (known == nullptr) {
      if (++unknown <= kMaximumUnknownTold)
        notes.push_back(note_at(map, entry.key, unknown_text(map, table, entry.key)));
      continue;
    }
    if (known->kind == KeyClass::used || known->kind == KeyClass::harmless) continue;
    if (is_neutral(entry.value, known->neutral)) continue;
    const std::string text =
        fmt::format("{}, which is not modelled: {}", found_text(entry.value), known->meaning);
    if (known->kind == KeyClass::refused) {
      map.problem(entry.key, text);
    } else if (known->kind == KeyClass::not_modelled || left_out == nullptr) {
      notes.push_back(note_at(map, entry.key, text));
    } else {
      left_out->push_back(
          {known->name, note_at(map, entry.key, text), known->kind == KeyClass::left_out_of_figures});
    }
  }
  if (unknown > kMaximumUnknownTold) {
    notes.push_back(Problem{map.source(), map.value()->line, map.path(),
                            fmt::format("{} more keys are not known", unknown - kMaximumUnknownTold)}
                        .text());
  }
}

}  // namespace zeroplan::describe
