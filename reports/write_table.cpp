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

struct TextTable {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::size_t> rules_before;
};

TextTable text_of(const Table& table) {
  TextTable result{table.columns, {}, table.rules_before};
  for (const std::vector<Cell>& row : table.rows) {
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < table.columns.size(); ++i) texts.push_back(cell_text(row[i]));
    result.rows.push_back(std::move(texts));
  }
  return result;
}

std::size_t longest_word(std::string_view text) {
  std::size_t longest = 0;
  for (const std::string& word : wrapped_lines(text, 1)) longest = std::max(longest, width_of(word));
  return longest;
}

std::size_t line_width(const std::vector<std::size_t>& widths) {
  std::size_t total = 0;
  for (const std::size_t width : widths) total += kGap.size() + width;
  return total;
}

// Each column as wide as its widest cell; where a line would be too long, columns of words are narrowed, the
// widest first, down to their longest word.
std::vector<std::size_t> column_widths(const TextTable& table) {
  std::vector<std::size_t> widths, least;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const Column& column = table.columns[i];
    widths.push_back(width_of(column.heading));
    least.push_back(widths.back());
    for (const std::vector<std::string>& row : table.rows) {
      widths[i] = std::max(widths[i], width_of(row[i]));
      least[i] = std::max(least[i], column.numbers ? width_of(row[i]) : longest_word(row[i]));
    }
  }
  while (line_width(widths) > kLineWidth) {
    std::size_t widest = widths.size();
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (widths[i] > least[i] && (widest == widths.size() || widths[i] > widths[widest])) widest = i;
    }
    if (widest == widths.size()) break;
    --widths[widest];
  }
  return widths;
}

// The first column and those after it that fit on a line; of the rest, each part has the first column again.
std::vector<TextTable> parts_of(const TextTable& table) {
  std::vector<std::size_t> widths = column_widths(table);
  std::size_t count = widths.size();
  while (count > 2 &&
         line_width({widths.begin(), widths.begin() + static_cast<std::ptrdiff_t>(count)}) > kLineWidth)
    --count;
  if (count == widths.size()) return {table};
  TextTable first{{table.columns.begin(), table.columns.begin() + static_cast<std::ptrdiff_t>(count)},
                  {},
                  table.rules_before};
  TextTable rest{{table.columns.front()}, {}, table.rules_before};
  rest.columns.insert(rest.columns.end(), table.columns.begin() + static_cast<std::ptrdiff_t>(count),
                      table.columns.end());
  for (const std::vector<std::string>& row : table.rows) {
    const auto middle = row.begin() + static_cast<std::ptrdiff_t>(count);
    first.rows.emplace_back(row.begin(), middle);
    rest.rows.push_back({row.front()});
    rest.rows.back().insert(rest.rows.back().end(), middle, row.end());
  }
  std::vector<TextTable> parts = parts_of(rest);
  parts.insert(parts.begin(), std::move(first));
  return parts;
}

struct TextWriter {
  std::string text;

  void operator()(const Headline& headline) {
    (*this)(Heading{headline.title});
    (*this)(Paragraph{headline.answer});
  }
  void operator()(const Chart& chart) {
    (*this)(Heading{chart.title});
    (*this)(chart.table);
  }
  void operator()(const Heading& heading) { text += heading.text + '\n'; }
  void operator()(const Paragraph& paragraph) {
    for (const std::string& line : wrapped_lines(paragraph.text, kLineWidth)) text += line + '\n';
  }

  // A command that is too long for a line goes on in the next, as a shell reads it.
  void operator()(const Commands& commands) {
    constexpr std::string_view kMore = "    ", kGoesOn = " \\";
    const std::size_t width = kLineWidth - kGap.size() - kMore.size() - kGoesOn.size();
    for (const std::string& line : commands.lines) {
      const bool is_short = kGap.size() + width_of(line) <= kLineWidth || line.starts_with('#');
      const std::vector<std::string> parts = is_short ? std::vector{line} : wrapped_lines(line, width);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        text += std::string(kGap) + (i > 0 ? std::string(kMore) : "") + parts[i] +
                (i + 1 < parts.size() ? std::string(kGoesOn) : "") + '\n';
      }
    }
  }

  void operator()(const Lines& lines) {
    for (const std::string& line : lines.lines) text += std::string(kGap) + line + '\n';
  }

  void operator()(const Table& table) {
    const std::vector<TextTable> parts = parts_of(text_of(table));
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (i > 0) text += '\n';
      add(parts[i]);
    }
  }

  void add(const TextTable& table) {
    const std::vector<std::size_t> widths = column_widths(table);
    std::string headings;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      headings += std::string(kGap) + padded(table.columns[i].heading, widths[i], table.columns[i].numbers);
    }
    if (headings.find_first_not_of(' ') != std::string::npos) text += without_trailing_blanks(headings);
    const std::string rule = std::string(kGap) + std::string(line_width(widths) - kGap.size(), '-') + '\n';
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      if (std::count(table.rules_before.begin(), table.rules_before.end(), r) > 0) text += rule;
      add_row(table, table.rows[r], widths);
    }
  }

  void add_row(const TextTable& table, const std::vector<std::string>& row,
               const std::vector<std::size_t>& widths) {
    std::vector<std::vector<std::string>> cells;
    std::size_t lines = 1;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const bool is_whole = table.columns[i].numbers || width_of(row[i]) <= widths[i];
      cells.push_back(is_whole ? std::vector{row[i]} : wrapped_lines(row[i], widths[i]));
      lines = std::max(lines, cells.back().size());
    }
    for (std::size_t k = 0; k < lines; ++k) {
      std::string line;
      for (std::size_t i = 0; i < widths.size(); ++i) {
        const std::string cell = k < cells[i].size() ? cells[i][k] : "";
        line += std::string(kGap) + padded(cell, widths[i], table.columns[i].numbers);
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
