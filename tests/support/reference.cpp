#include "tests/support/reference.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace zeroplan::test {

using describe::Value;

describe::Document reference(const std::string& file) {
  const std::string path = std::string(ZEROPLAN_TEST_DATA) + "/" + file;
  return describe::parse_yaml(describe::read_text_file(path), file);
}

const Value& at(const Value& root, std::string_view path) {
  const Value* value = &root;
  std::string_view rest = path;
  while (!rest.empty()) {
    const std::size_t dot = std::min(rest.find('.'), rest.size());
    value = value->find(rest.substr(0, dot));
    if (value == nullptr) throw std::out_of_range("no " + std::string(path) + " in the reference");
    rest.remove_prefix(std::min(dot + 1, rest.size()));
  }
  return *value;
}

const std::vector<Value>& rows(const Value& root, std::string_view path) {
  const Value& list = at(root, path);
  if (list.items.empty()) throw std::out_of_range("no rows at " + std::string(path));
  return list.items;
}

const Value& row(const std::vector<Value>& rows, std::string_view key, std::string_view text) {
  for (const Value& candidate : rows) {
    const Value* value = candidate.find(key);
    if (value != nullptr && value->text == text) return candidate;
  }
  throw std::out_of_range("no row with " + std::string(key) + " " + std::string(text));
}

const std::string& text(const Value& map, std::string_view path) { return at(map, path).text; }

double number(const Value& map, std::string_view path) { return std::stod(text(map, path)); }

std::int64_t integer(const Value& map, std::string_view path) { return std::llround(number(map, path)); }

std::vector<double> numbers(const Value& map, std::string_view path) {
  std::vector<double> result;
  for (const Value& item : rows(map, path)) result.push_back(std::stod(item.text));
  return result;
}

}  // namespace zeroplan::test
