#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "planner/describe/text/document.hpp"
#include "tests/fuzz/refusal.hpp"

namespace zeroplan::fuzz {

// The tree holds what the header promises; lines are those of the text.
inline void check_value(const describe::Value& value, int lines, std::size_t depth) {
  using Kind = describe::Value::Kind;
  require(value.line >= 1 && value.line <= lines);
  const bool nested = value.kind == Kind::list || value.kind == Kind::map;
  require(!nested || depth < 64);
  require(value.kind == Kind::scalar || (value.text.empty() && !value.quoted));
  require(value.kind == Kind::list || value.items.empty());
  require(value.kind == Kind::map || value.entries.empty());
  for (const describe::Value& item : value.items) check_value(item, lines, depth + 1);
  for (const describe::Entry& entry : value.entries) {
    require(entry.line >= 1 && entry.line <= lines);
    require(value.find(entry.key) == &entry.value);  // unique
    check_value(entry.value, lines, depth + 1);
  }
}

inline void check_document(const describe::Document& document, std::string_view text) {
  const auto lines = 1 + std::count(text.begin(), text.end(), '\n');
  check_value(document.root, static_cast<int>(lines), 0);
}

}  // namespace zeroplan::fuzz
