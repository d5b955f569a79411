#include <algorithm>

#include "reports/writers.hpp"

namespace zeroplan::reports {
namespace {

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (std::string_view("|\\`*_<>[]").find(c) != std::string_view::npos) result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result;
}

struct MarkdownWriter {
  std::string text;

  void operator()(const Headline& headline) {
    text += "# " + escaped(headline.title) + "\n\n**" + escaped(headline.answer) + "**\n";
  }
  void operator()(const Chart& chart) {
    text += "**" + escaped(chart.title) + "**\n\n" + escaped(chart.alternative) + "\n\n";
    (*this)(chart.table);
  }
  void operator()(const Heading& heading) { text += "## " + escaped(heading.text) + '\n'; }
  void operator()(const Paragraph& paragraph) { text += escaped(paragraph.text) + '\n'; }

  void operator()(const Commands& commands) {
    text += "```sh\n";
    for (const std::string& line : commands.lines) text += line + '\n';
    text += "```\n";
  }

  void operator()(const Lines& lines) {
    text += "```text\n";
    for (const std::string& line : lines.lines) text += line + '\n';
    text += "```\n";
  }

  void operator()(const Table& table) {
    for (const Column& column : table.columns) text += "| " + escaped(column.heading) + ' ';
    text += "|\n";
    for (const Column& column : table.columns) text += column.numbers ? "| ---: " : "| --- ";
    text += "|\n";
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      const bool sum = std::count(table.rules_before.begin(), table.rules_before.end(), r) > 0;
      for (const Cell& cell : table.rows[r]) {
        const std::string inner = escaped(cell_text(cell));
        text += "| " + (sum && !inner.empty() ? "**" + inner + "**" : inner) + ' ';
      }
      text += "|\n";
    }
  }
};

}  // namespace

std::string write_markdown(const std::vector<Block>& blocks) {
  MarkdownWriter writer;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i > 0) writer.text += '\n';
    std::visit(writer, blocks[i]);
  }
  return writer.text;
}

}  // namespace zeroplan::reports
