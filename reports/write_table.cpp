#include <algorithm>

#include "planner/utf8.hpp"
#include "reports/writers.hpp"

namespace zeroplan::reports {
namespace {

constexpr std::size_t kLineWidth = 100;
constexpr std::string_view kGap = "  ";

// Columns on the screen, taking every code point for one.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t width, bool right) {
  const std::string blanks(width - std::min(width, width_of(text)), ' ');
  return right ? blanks + text : text + blanks;
}

std::string without_trailing_blanks(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

struct TextWriter {
  std::string text;

  void operator()(const Heading& heading) { text += heading.text + '\n'; }
  void operator()(const Paragraph& paragraph) {
    for (const std::string& line : wrapped_lines(paragraph.text, kLineWidth)) text += line + '\n';
  }

  void operator()(const Commands& commands) {
    for (const std::string& line : commands.lines) text += std::string(kGap) + line + '\n';
  }

  void operator()(const Table& table) {
    std::vector<std::size_t> widths;
    for (const Column& column : table.columns) widths.push_back(width_of(column.heading));
    for (const std::vector<Cell>& row : table.rows) {
      for (std::size_t i = 0; i < widths.size(); ++i)
        widths[i] = std::max(widths[i], width_of(cell_text(row[i])));
    }
    std::string headings;
    std::size_t total = 0;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      headings += std::string(kGap) + padded(table.columns[i].heading, widths[i], table.columns[i].numbers);
      total += kGap.size() + widths[i];
    }
    if (headings.find_first_not_of(' ') != std::string::npos) text += without_trailing_blanks(headings);
    const std::string rule = std::string(kGap) + std::string(total - kGap.size(), '-') + '\n';
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      if (std::count(table.rules_before.begin(), table.rules_before.end(), r) > 0) text += rule;
      std::string line;
      for (std::size_t i = 0; i < widths.size(); ++i) {
        line += std::string(kGap) + padded(cell_text(table.rows[r][i]), widths[i], table.columns[i].numbers);
      }
      text += without_trailing_blanks(line);
    }
  }
};

// A heading stands right above what it is the heading of; paragraphs that follow each other stand together.
bool blank_line_between(const Block& before, const Block& after) {
  if (std::holds_alternative<Heading>(before)) return false;
  return !(std::holds_alternative<Paragraph>(before) && std::holds_alternative<Paragraph>(after));
}

}  // namespace

std::vector<std::string> wrapped_lines(std::string_view text, std::size_t width) {
  std::vector<std::string> lines(1);
  std::size_t column = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (column > 0 && column + 1 + width_of(word) > width) {
      lines.emplace_back();
      column = 0;
    } else if (column > 0) {
      lines.back() += ' ';
      ++column;
    }
    lines.back() += word;
    column += width_of(word);
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return lines;
}

std::string write_table(const std::vector<Block>& blocks) {
  TextWriter writer;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i > 0 && blank_line_between(blocks[i - 1], blocks[i])) writer.text += '\n';
    std::visit(writer, blocks[i]);
  }
  return writer.text;
}

}  // namespace zeroplan::reports
