#include "planner/accuracy/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "planner/error.hpp"

namespace zeroplan::accuracy {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

class Scanner {
 public:
  Scanner(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  bool at_end() const { return at_ == text_.size(); }

  CsvTable::Row row() {
    CsvTable::Row row{line_, {}};
    do row.fields.push_back(field());
    while (take(','));
    end_line();
    return row;
  }

 private:
  [[noreturn]] void refuse(int line, std::string message) const {
    throw ConfigurationError(Problem{source_, line, "", std::move(message)});
  }

  bool take(char wanted) {
    if (at_end() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  std::string field() { return take('"') ? quoted_field() : plain_field(); }

  std::string plain_field() {
    const std::size_t begin = at_;
    at_ = std::min(text_.find_first_of(",\r\n\"", at_), text_.size());
    if (!at_end() && text_[at_] == '"') {
      refuse(line_, "found a quote inside a field, expected the whole field between quotes");
    }
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string quoted_field() {
    const int begin = line_;
    std::string result;
    while (!at_end()) {
      const char letter = text_[at_++];
      if (letter == '\n') ++line_;
      if (letter != '"') {
        result += letter;
      } else if (take('"')) {
        result += '"';
      } else {
        return result;
      }
    }
    refuse(begin, "found a quote that is never closed");
  }

  void end_line() {
    if (at_end()) return;
    const bool carriage_return = take('\r');
    if (take('\n')) {
      ++line_;
      return;
    }
    if (carriage_return) refuse(line_, "found CR without LF, expected LF or CR LF at the end of a line");
    refuse(line_, "found text after a closing quote, expected a comma or the end of the line");
  }

  std::string_view text_;
  const std::string& source_;
  std::size_t at_ = 0;
  int line_ = 1;
};

void check_header(const CsvTable& table) {
  for (auto name = table.header.begin(); name != table.header.end(); ++name) {
    if (name->empty())
      throw ConfigurationError(Problem{table.source, 1, "", "found a column without a name"});
    if (std::find(table.header.begin(), name, *name) != name) {
      throw ConfigurationError(
          Problem{table.source, 1, "", fmt::format("found column {} twice", quoted(*name))});
    }
  }
}

}  // namespace

std::optional<std::size_t> CsvTable::column(std::string_view name) const {
  const auto found = std::find(header.begin(), header.end(), name);
  if (found == header.end()) return std::nullopt;
  return static_cast<std::size_t>(found - header.begin());
}

CsvTable read_csv(std::string_view text, std::string source) {
  CsvTable table;
  table.source = std::move(source);
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  Scanner scanner(text, table.source);
  if (scanner.at_end()) {
    throw ConfigurationError(Problem{table.source, 1, "", "found an empty file, expected a header line"});
  }
  table.header = scanner.row().fields;
  check_header(table);
  Problems problems;
  while (!scanner.at_end()) {
    CsvTable::Row row = scanner.row();
    if (row.fields.size() == table.header.size()) {
      table.rows.push_back(std::move(row));
    } else {
      problems.add({table.source, row.line, "",
                    fmt::format("found {} fields, expected the {} of the header", row.fields.size(),
                                table.header.size())});
    }
  }
  problems.throw_if_any();
  return table;
}

}  // namespace zeroplan::accuracy
