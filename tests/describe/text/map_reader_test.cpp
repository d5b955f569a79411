#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "planner/describe/text/document.hpp"

namespace zeroplan::describe {
namespace {

const std::vector<std::string> kPrecisions = {"fp32", "fp16", "bf16"};

TEST_CASE("each getter reads its kind") {
  const Document document = parse_yaml(
      "layers: 48\n"
      "parameters: 7.5B\n"
      "dropout: 0.1\n"
      "tied: yes\n"
      "bucket: 500MB\n"
      "name: gpt2\n"
      "precision: bf16\n"
      "experts: {count: 8}\n"
      "sizes: [1, 2]\n"
      "extra: anything\n"
      "unused: 1\n",
      "m.yaml");
  Problems problems;
  MapReader reader(document.root, document.source, "", problems);
  CHECK(reader.integer("layers", 1, 100) == 48);
  CHECK(reader.count("parameters", 1, 1'000'000'000'000) == 7'500'000'000);
  CHECK(reader.real("dropout", 0, 1) == 0.1);
  CHECK(reader.boolean("tied") == true);
  CHECK(reader.bytes("bucket") == 500'000'000);
  CHECK(reader.string("name") == "gpt2");
  CHECK(reader.one_of("precision", kPrecisions) == 2);
  REQUIRE(reader.map("experts") != nullptr);
  REQUIRE(reader.list("sizes") != nullptr);
  CHECK(reader.list("sizes")->items.size() == 2);
  REQUIRE(reader.any("extra") != nullptr);
  reader.ignore("unused");
  MapReader nested(*reader.map("experts"), reader.source(), reader.dotted("experts"), reader.problems());
  CHECK(nested.integer("count", 1, 100) == 8);
  CHECK(nested.dotted("count") == "experts.count");
  nested.finish();
  reader.finish();
  CHECK(problems.empty());
}

TEST_CASE("absent and null keys are nothing, and no problem") {
  const Document document = parse_json(R"({"a": null, "b": 1})", "c.json");
  Problems problems;
  MapReader reader(document.root, document.source, "", problems);
  for (const std::string_view key : {"a", "z"}) {
    CHECK_FALSE(reader.has(key));
    CHECK_FALSE(reader.integer(key, 0, 1).has_value());
    CHECK_FALSE(reader.count(key, 0, 1).has_value());
    CHECK_FALSE(reader.real(key, 0, 1).has_value());
    CHECK_FALSE(reader.boolean(key).has_value());
    CHECK_FALSE(reader.bytes(key).has_value());
    CHECK_FALSE(reader.string(key).has_value());
    CHECK_FALSE(reader.one_of(key, kPrecisions).has_value());
    CHECK(reader.map(key) == nullptr);
    CHECK(reader.list(key) == nullptr);
  }
  CHECK(reader.any("a") != nullptr);
  CHECK(reader.any("z") == nullptr);
  CHECK(reader.has("b"));
  reader.finish();
  CHECK(problems.empty());
}

TEST_CASE("a number between quotes is a number where one is asked for") {
  const Document document = parse_json(R"({"reduce_bucket_size": "500000000", "size": "1GiB"})", "ds.json");
  Problems problems;
  MapReader reader(document.root, document.source, "", problems);
  CHECK(reader.integer("reduce_bucket_size", 0, 1'000'000'000) == 500'000'000);
  CHECK(reader.bytes("size") == 1'073'741'824);
  CHECK(problems.empty());
}

TEST_CASE("all problems come out in one pass, each with line, dotted key, what was found and expected") {
  const Document document = parse_yaml(
      "layers: 012\n"
      "hidden: [1]\n"
      "dropout: .nan\n"
      "tied: maybe\n"
      "bucket: 10G\n"
      "precision: fp61\n"
      "name: {a: 1}\n"
      "experts:\n"
      "  count: -1\n"
      "sizes: 3\n"
      "laxers: 4\n",
      "m.yaml");
  Problems problems;
  MapReader reader(document.root, document.source, "", problems);
  CHECK_FALSE(reader.integer("layers", 1, 100).has_value());
  CHECK_FALSE(reader.integer("hidden", 1, 100).has_value());
  CHECK_FALSE(reader.real("dropout", 0, 1).has_value());
  CHECK_FALSE(reader.boolean("tied").has_value());
  CHECK_FALSE(reader.bytes("bucket").has_value());
  CHECK_FALSE(reader.one_of("precision", kPrecisions).has_value());
  CHECK_FALSE(reader.string("name").has_value());
  MapReader nested(*reader.map("experts"), reader.source(), reader.dotted("experts"), problems);
  CHECK_FALSE(nested.integer("count", 0, 100).has_value());
  CHECK(reader.list("sizes") == nullptr);
  reader.missing("heads", "the number of attention heads");
  reader.missing("layers", "never told twice");
  reader.problem("tied", "does not go with heads");
  reader.finish();

  std::vector<std::string> told;
  for (const Problem& problem : problems.list()) told.push_back(problem.text());
  const std::vector<std::string> expected = {
      "m.yaml:1: layers: found \"012\", expected a whole number from 1 to 100 without a zero in front",
      "m.yaml:2: hidden: found a list, expected a whole number",
      "m.yaml:3: dropout: found \".nan\", expected a finite number from 0 to 1",
      "m.yaml:4: tied: found \"maybe\", expected true or false",
      "m.yaml:5: bucket: found \"10G\", expected 10GB (1000^3 bytes) or 10GiB (1024^3 bytes)",
      "m.yaml:6: precision: found \"fp61\", expected one of fp32, fp16, bf16; nearest: fp16",
      "m.yaml:7: name: found a map, expected text",
      "m.yaml:9: experts.count: found \"-1\", expected a whole number from 0 to 100",
      "m.yaml:10: sizes: found \"3\", expected a list",
      "m.yaml:1: heads: missing, expected the number of attention heads",
      "m.yaml:4: tied: does not go with heads",
      "m.yaml:11: laxers: unknown key; nearest: layers",
  };
  CHECK(told.size() == expected.size());
  for (std::size_t i = 0; i < std::min(told.size(), expected.size()); ++i) CHECK(told[i] == expected[i]);
}

TEST_CASE("an unknown key that is near to none lists what is known") {
  const Document document = parse_yaml("a: 1\nb: {zzz: 1}\n", "m.yaml");
  Problems problems;
  MapReader reader(*document.root.find("b"), "m.yaml", "b", problems);
  (void)reader.integer("hidden", 0, 1);
  (void)reader.integer("layers", 0, 1);
  reader.finish();
  REQUIRE(problems.list().size() == 1);
  CHECK(problems.list()[0].text() == "m.yaml:2: b.zzz: unknown key, expected one of hidden, layers");
}

TEST_CASE("foreign files may have further keys") {
  const Document document = parse_json(R"({"hidden_size": 8, "transformers_version": "4.1"})", "c.json");
  Problems problems;
  MapReader reader(document.root, document.source, "", problems);
  CHECK(reader.integer("hidden_size", 1, 10) == 8);
  reader.allow_unknown();
  reader.finish();
  CHECK(problems.empty());
}

TEST_CASE("thousands of unknown keys are summed up") {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "k" + std::to_string(i) + ": 1\n";
  const Document document = parse_yaml(text, "m.yaml");
  Problems problems;
  MapReader reader(document.root, document.source, "", problems);
  reader.finish();
  REQUIRE(problems.list().size() == 21);
  CHECK(problems.list().back().message == "4980 more unknown keys");
}

TEST_CASE("what is not a map is one problem, and every getter gives nothing") {
  for (const auto& [text, found] : {std::pair{"", "nothing"}, {"- 1\n", "a list"}, {"12\n", "\"12\""}}) {
    const Document document = parse_yaml(text, "m.yaml");
    Problems problems;
    MapReader reader(document.root, document.source, "", problems);
    CHECK_FALSE(reader.has("a"));
    CHECK_FALSE(reader.integer("a", 0, 1).has_value());
    CHECK(reader.map("a") == nullptr);
    reader.missing("a", "a number");
    reader.finish();
    REQUIRE(problems.list().size() == 1);
    CHECK(problems.list()[0].text() ==
          "m.yaml:1: found " + std::string(found) + ", expected a map of keys and values");
  }
}

}  // namespace
}  // namespace zeroplan::describe
