#include "reports/writers.hpp"

#include <doctest/doctest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/process.hpp"

using namespace zeroplan::reports;

namespace {

Data sample() {
  Data rows = Data::list();
  rows.add(Data::map().set("name", "a,\"b\"").set("bytes", std::int64_t{1557611200}));
  rows.add(Data::map().set("name", "line\nbreak").set("ratio", 0.1));
  return Data::map()
      .set("schema", "test/1")
      .set("text", "tab\t, quote \", backslash \\, \xC3\xA9, \x01")
      .set("nested", Data::map()
                         .set("largest", std::numeric_limits<std::int64_t>::max())
                         .set("yes", true)
                         .set("none", Data()))
      .set("empty_list", Data::list())
      .set("empty_map", Data::map())
      .set("number_like", "012")
      .set("rows", std::move(rows));
}

}  // namespace

TEST_CASE("JSON reads back as what was written, in both forms") {
  const nlohmann::json indented = nlohmann::json::parse(write_json(sample(), false));
  const std::string line = write_json(sample(), true);
  CHECK(indented == nlohmann::json::parse(line));
  CHECK(std::count(line.begin(), line.end(), '\n') == 1);
  CHECK(indented["text"] == "tab\t, quote \", backslash \\, \xC3\xA9, \x01");
  CHECK(indented["nested"]["largest"] == 9223372036854775807);
  CHECK(indented["nested"]["yes"] == true);
  CHECK(indented["nested"]["none"].is_null());
  CHECK(indented["rows"][1]["ratio"] == 0.1);
  CHECK(indented["empty_list"].empty());
}

TEST_CASE("JSON strings: bytes that are not UTF-8 do not reach the output") {
  CHECK(write_json(Data("a\xFFz"), true) == "\"a\xEF\xBF\xBDz\"\n");
  CHECK(write_json(Data(""), true) == "\"\"\n");
}

TEST_CASE("JSON: what is not finite becomes null") {
  const Data data = Data::map().set("x", std::numeric_limits<double>::infinity());
  CHECK(nlohmann::json::parse(write_json(data, true))["x"].is_null());
}

TEST_CASE("YAML reads back as what was written") {
  const YAML::Node node = YAML::Load(write_yaml(sample()));
  CHECK(node["nested"]["largest"].as<std::int64_t>() == std::numeric_limits<std::int64_t>::max());
  CHECK(node["nested"]["yes"].as<bool>());
  CHECK(node["nested"]["none"].IsNull());
  CHECK(node["rows"].size() == 2);
  CHECK(node["rows"][0]["name"].as<std::string>() == "a,\"b\"");
  CHECK(node["rows"][1]["name"].as<std::string>() == "line\nbreak");
  CHECK(node["number_like"].as<std::string>() == "012");
  CHECK(node["empty_list"].IsSequence());
  CHECK(node["empty_map"].IsMap());
}

TEST_CASE("CSV: a row per map of the list, every key a column, fields quoted where they must be") {
  CHECK(write_csv(sample(), "rows") ==
        "name,bytes,ratio\n\"a,\"\"b\"\"\",1557611200,\n\"line\nbreak\",,0.1\n");
}

TEST_CASE("CSV: without rows everything is one line with dotted keys") {
  const Data data = Data::map().set("a", 1).set("b", Data::map().set("c", 2.5).set("d", Data::list()));
  CHECK(write_csv(data, "") == "a,b.c\n1,2.5\n");
}

TEST_CASE("tables: numbers to the right, text to the left, a line before sums") {
  const Table table{
      {{"name", false}, {"GiB"}},
      {{std::string("a"), Gibibytes{1073741824}}, {std::string("all of it"), Gibibytes{16106127360}}},
      {1}};
  CHECK(write_table({table}) ==
        "  name         GiB\n"
        "  a           1.00\n"
        "  ----------------\n"
        "  all of it  15.00\n");
}

TEST_CASE("tables: multi-byte letters take one column") {
  const Table table{{{"n", false}, {"v"}},
                    {{std::string("\xC3\xA9"), std::int64_t{1}}, {std::string("ab"), std::int64_t{2}}},
                    {}};
  CHECK(write_table({table}) == "  n   v\n  \xC3\xA9   1\n  ab  2\n");
}

TEST_CASE("paragraphs wrap at 100 columns") {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "word ";
  const std::string written = write_table({Paragraph{text}});
  std::size_t longest = 0;
  for (std::size_t begin = 0; begin < written.size();) {
    const std::size_t end = written.find('\n', begin);
    longest = std::max(longest, end - begin);
    begin = end + 1;
  }
  CHECK(longest <= 100);
  CHECK(longest > 90);
}

TEST_CASE("tables: columns of words are narrowed where a line would have more than 100 columns") {
  const std::string sentence = "a reason that takes more room than the line has left";
  const Table table{
      {{"key", false}, {"n"}, {"why", false}},
      {{std::string(60, 'k'), std::int64_t{7}, sentence}, {std::string("b"), {}, std::string("c")}},
      {}};
  CHECK(write_table({table}) == "  key" + std::string(57, ' ') + "  n  why\n" + "  " + std::string(60, 'k') +
                                    "  7  a reason that takes more room\n" + std::string(67, ' ') +
                                    "than the line has left\n" + "  b" + std::string(62, ' ') + "  c\n");
}

TEST_CASE("tables: columns that do not fit on a line stand below, under the first column again") {
  std::vector<zeroplan::reports::Column> columns{{"name", false}};
  std::vector<zeroplan::reports::Cell> row{std::string("x")};
  for (int i = 0; i < 12; ++i) {
    columns.push_back({"column " + std::to_string(i)});
    row.emplace_back(std::int64_t{1234567890});
  }
  const std::string written = write_table({Table{columns, {row}, {}}});
  std::istringstream lines(written);
  std::size_t names = 0;
  for (std::string line; std::getline(lines, line);) {
    CHECK(line.size() <= 100);
    if (line.starts_with("  name")) ++names;
  }
  CHECK(names == 2);
  for (int i = 0; i < 12; ++i) CHECK(written.find("column " + std::to_string(i)) != std::string::npos);
}

TEST_CASE("a command that is too long for a line is one that a shell puts together again") {
  std::string command = "zeroplan fit";
  for (int i = 0; i < 20; ++i) command += " --option-" + std::to_string(i) + " value";
  std::string written = write_table({Commands{{command}}});
  std::istringstream lines(written);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 100);
  written.pop_back();  // the end of the last line
  CHECK(zeroplan::test::run_shell("set -- " + written + "; echo \"$*\"").out == command + '\n');
}

TEST_CASE("Markdown: a table with its alignment, special letters escaped, commands in a code block") {
  const Table table{{{"a|b", false}, {"n"}}, {{std::string("x_y"), std::int64_t{1234}}}, {0}};
  CHECK(write_markdown({Heading{"T"}, table, Commands{{"zeroplan fit x"}}}) ==
        "## T\n\n| a\\|b | n |\n| --- | ---: |\n| **x\\_y** | **1,234** |\n\n```sh\nzeroplan fit x\n```\n");
}
