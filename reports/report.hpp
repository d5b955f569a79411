#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "planner/units.hpp"
#include "reports/data.hpp"

// What a command answers, before it is written in one format or another: the data for programs, and the same
// as headings, paragraphs and tables for people. A command makes one Report; a format has one writer
// (reports/writers.hpp).
namespace zeroplan::reports {

// Typed cells: how a number is shown belongs to its type, not to the code that makes the table.
struct Gibibytes {
  double bytes = 0;  // shown / 2^30, two decimals
};
struct Gigabytes {
  double bytes = 0;  // shown / 1e9, two decimals
};
struct Percent {
  double fraction = 0;  // shown x 100, one decimal
};
struct Real {
  double value = 0;
  int decimals = 2;
};
using Cell = std::variant<std::monostate, std::string, std::int64_t, Gibibytes, Gigabytes, Percent, Real>;

// The text of a cell: whole numbers with commas between thousands; empty for no value.
std::string cell_text(const Cell& cell);

struct Column {
  std::string heading;  // with the unit
  bool numbers = true;  // aligned to the right
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
  std::vector<std::size_t> rules_before;  // rows that have a line above them: sums
};

struct Heading {
  std::string text;
};
// What a page begins with: the answer in a sentence, and the word that gives it its colour (a verdict, an outcome).
struct Headline {
  std::string title, answer, word;
};
struct Paragraph {
  std::string text;
};
struct Commands {
  std::vector<std::string> lines;  // to paste into a shell
};
struct Lines {
  std::vector<std::string> lines;  // as they are
};
// What a part of a picture is called and coloured, #rrggbb.
struct Shade {
  std::string name, color;
};
// A picture and the same as a table, which stands alone where pictures do not: in text, in Markdown, without scripts.
struct Chart {
  std::string title;
  std::string alternative;    // what a reader who does not see it should know, a sentence
  std::string specification;  // Vega 5, JSON (reports/charts.hpp)
  std::vector<Shade> legend;  // of what is in it
  Table table;
};
using Block = std::variant<Headline, Heading, Paragraph, Table, Chart, Commands, Lines>;

struct Report {
  Data data;  // JSON, JSONL, YAML, CSV
  std::string
      rows;  // CSV: dotted path of a list in `data` with one map a row; empty: all of `data` is one row
  std::vector<Block> blocks;  // table, Markdown, HTML
};

// "Notes": what stood in a file and the answer does not hold, one paragraph each; nothing where there is none.
void add_notes(std::vector<Block>& blocks, const std::vector<std::string>& notes);

}  // namespace zeroplan::reports
