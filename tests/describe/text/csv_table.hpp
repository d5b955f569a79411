#pragma once

#include <cstddef>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace zeroplan::testing {

// The rows of a CSV file with a header line, by column name; fields may be quoted and hold commas and doubled
// quotes.
inline std::vector<std::map<std::string, std::string>> read_csv(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};

  std::vector<std::vector<std::string>> lines(1);
  std::string field;
  bool inside_quotes = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (inside_quotes) {
      if (letter != '"') {
        field += letter;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        field += text[++i];
      } else {
        inside_quotes = false;
      }
    } else if (letter == '"') {
      inside_quotes = true;
    } else if (letter == ',' || letter == '\n') {
      lines.back().push_back(field);
      field.clear();
      if (letter == '\n') lines.emplace_back();
    } else {
      field += letter;
    }
  }
  lines.pop_back();

  std::vector<std::map<std::string, std::string>> rows;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].size() != lines[0].size())
      throw std::runtime_error(path + ": ragged row " + std::to_string(i + 1));
    std::map<std::string, std::string> row;
    for (std::size_t column = 0; column < lines[0].size(); ++column) row[lines[0][column]] = lines[i][column];
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace zeroplan::testing
