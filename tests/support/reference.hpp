#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/describe/text/document.hpp"

// Rows of tests/reference/*.yaml, so that no figure of a paper is copied by hand into a test.
namespace zeroplan::test {

describe::Document reference(const std::string& file);

// The value at a dotted path. Throws std::out_of_range naming the path where there is none.
const describe::Value& at(const describe::Value& root, std::string_view path);

// The items of the list at `path`.
const std::vector<describe::Value>& rows(const describe::Value& root, std::string_view path);

// The row whose `key` reads `text`.
const describe::Value& row(const std::vector<describe::Value>& rows, std::string_view key,
                           std::string_view text);

const std::string& text(const describe::Value& map, std::string_view path);
double number(const describe::Value& map, std::string_view path);
std::int64_t integer(const describe::Value& map, std::string_view path);
std::vector<double> numbers(const describe::Value& map, std::string_view path);

}  // namespace zeroplan::test
