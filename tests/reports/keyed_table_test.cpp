#include "reports/keyed_table.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "reports/figures.hpp"
#include "tests/support/command.hpp"

using namespace zeroplan;
using namespace zeroplan::reports;

namespace {

std::vector<std::string> texts(const std::vector<Cell>& row) {
  std::vector<std::string> result;
  result.reserve(row.size());
  for (const Cell& cell : row) result.push_back(cell_text(cell));
  return result;
}

}  // namespace

TEST_CASE("a table has a row for each map, and in it what stands under the keys") {
  Data::List rows;
  rows.push_back(Data::map()
                     .set("name", "a")
                     .set("count", std::int64_t{12345})
                     .set("fits", true)
                     .set("bytes", 3.0 * static_cast<double>(kGiB))
                     .set("nested", Data::map().set("share", 0.125))
                     .set("none", Data()));
  rows.push_back(Data::map().set("name", "b").set("bytes", 0.0));
  CellFormat if_any = kGibibytes;
  if_any.blank_at_zero = true;
  const std::vector<KeyedColumn> columns{
      {{"name", false}, "name"},
      {{"count"}, "count"},
      {{"fits", false}, "fits"},
      {{"GiB"}, "bytes", if_any},
      {{"%"}, "nested.share", kPercent},
      {{"none"}, "none"},
      {{"made"}, "", kPlain, [](const Data& row) { return text_at(row, "name") + "!"; }}};
  const Table table = table_of(rows, columns);
  REQUIRE(table.rows.size() == 2);
  CHECK(table.columns.size() == columns.size());
  CHECK(texts(table.rows[0]) == std::vector<std::string>{"a", "12,345", "yes", "3.00", "12.5", "", "a!"});
  CHECK(texts(table.rows[1]) == std::vector<std::string>{"b", "", "", "", "", "", "b!"});
  const Table some = table_of(rows, columns, [](const Data& row) { return text_at(row, "name") == "b"; });
  REQUIRE(some.rows.size() == 1);
  CHECK(texts(some.rows[0]) == texts(table.rows[1]));
}

TEST_CASE("numbers are shown in a unit, with decimals or with four digits") {
  const Data row = Data::map().set("seconds", 0.0123456).set("flops", 2.5e15);
  CHECK(cell_text(cell_at(row, "seconds", decimals(1, 1e-3))) == "12.3");
  CHECK(cell_text(cell_at(row, "seconds", kSignificant)) == "0.01235");
  CHECK(cell_text(cell_at(row, "flops", {CellFormat::Kind::significant, 0, 1e12})) == "2,500");
  CHECK(cell_text(cell_at(row, "absent", kSignificant)).empty());
}

TEST_CASE("data under dotted paths") {
  Data data = Data::map();
  data.set_at("a.b.c", std::int64_t{1}).set_at("a.d", 2.5).set_at("e", "text");
  CHECK(number_at(data, "a.b.c") == 1);
  CHECK(number_at(data, "a.d") == 2.5);
  CHECK(number_at(data, "a.b") == 0);
  CHECK(text_at(data, "e") == "text");
  CHECK(text_at(data, "a").empty());
  CHECK(list_at(data, "a").empty());
}

// One list feeds JSON, tables and `explain`; the schema has its keys and no others.
TEST_CASE("every figure has a key of its own, which the schema has too") {
  std::set<std::string> keys, top;
  for (const Figure& figure : figures()) {
    CAPTURE(figure.key);
    CHECK(keys.insert(figure.key).second);
    CHECK(figure.unit.empty() == figure.what.empty());
    top.insert(figure.key.substr(0, figure.key.find('.')));
  }
  const auto schema = nlohmann::json::parse(test::read_file(ZEROPLAN_SOURCE "/docs/schema/fit.schema.json"));
  std::set<std::string> in_schema;
  for (const auto& [key, ignored] : schema["properties"]["result"]["properties"].items())
    in_schema.insert(key);
  in_schema.erase("suggestions");
  CHECK(top == in_schema);
  for (const std::string& key : keys) {
    const nlohmann::json* place = &schema["properties"]["result"];
    std::size_t from = 0;
    while (from < key.size()) {
      const std::size_t dot = std::min(key.find('.', from), key.size());
      const std::string name = key.substr(from, dot - from);
      CAPTURE(key);
      REQUIRE((*place)["properties"].contains(name));
      place = &(*place)["properties"][name];
      from = dot + 1;
    }
  }
}
