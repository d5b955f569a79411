#include "planner/accuracy/csv.hpp"

#include <doctest/doctest.h>

#include <string>

#include "planner/error.hpp"

using zeroplan::ConfigurationError;
using zeroplan::accuracy::CsvTable;
using zeroplan::accuracy::read_csv;

namespace {

std::string refusal(std::string_view text) {
  try {
    read_csv(text, "runs.csv");
  } catch (const ConfigurationError& error) {
    std::string all;
    for (const zeroplan::Problem& problem : error.problems()) all += problem.text() + '\n';
    return all;
  }
  return "accepted";
}

}  // namespace

TEST_CASE("fields between quotes hold commas, quotes and line ends") {
  const CsvTable table = read_csv("a,b,c\n1,\"x, \"\"y\"\"\",\n\"two\nlines\",\"\",3\n4,5,6\n", "runs.csv");
  CHECK(table.header == std::vector<std::string>{"a", "b", "c"});
  REQUIRE(table.rows.size() == 3);
  CHECK(table.rows[0].fields == std::vector<std::string>{"1", "x, \"y\"", ""});
  CHECK(table.rows[1].fields == std::vector<std::string>{"two\nlines", "", "3"});
  CHECK(table.rows[0].line == 2);
  CHECK(table.rows[1].line == 3);
  CHECK(table.rows[2].line == 5);
  CHECK(table.column("b") == 1);
  CHECK_FALSE(table.column("d").has_value());
}

TEST_CASE("CR LF, a byte-order mark and a last line without an end") {
  const CsvTable table = read_csv(
      "\xEF\xBB\xBF"
      "a,b\r\n1,2\r\n3,4",
      "runs.csv");
  CHECK(table.header == std::vector<std::string>{"a", "b"});
  REQUIRE(table.rows.size() == 2);
  CHECK(table.rows[1].fields == std::vector<std::string>{"3", "4"});
  CHECK(read_csv("a,b\n", "runs.csv").rows.empty());
  CHECK(read_csv("a\n\n", "runs.csv").rows.at(0).fields == std::vector<std::string>{""});
}

TEST_CASE("every ragged line is named with file and line") {
  CHECK(refusal("a,b\n1\n1,2\n1,2,3\n") ==
        "runs.csv:2: found 1 fields, expected the 2 of the header\n"
        "runs.csv:4: found 3 fields, expected the 2 of the header\n");
  CHECK(refusal("a,b\n\n") == "runs.csv:2: found 1 fields, expected the 2 of the header\n");
}

TEST_CASE("what is not RFC 4180 is refused where it stands") {
  CHECK(refusal("").starts_with("runs.csv:1: found an empty file"));
  CHECK(refusal("a,b\n1,x\"y\"\n").starts_with("runs.csv:2: found a quote inside a field"));
  CHECK(refusal("a,b\n\"1\"x,2\n").starts_with("runs.csv:2: found text after a closing quote"));
  CHECK(refusal("a,b\n1,2\n\"3,4\n5,6\n").starts_with("runs.csv:3: found a quote that is never closed"));
  CHECK(refusal("a,b\n1,2\r3,4\n").starts_with("runs.csv:2: found CR without LF"));
  CHECK(refusal("a,a\n1,2\n").starts_with("runs.csv:1: found column \"a\" twice"));
  CHECK(refusal("a,\n1,2\n").starts_with("runs.csv:1: found a column without a name"));
}
