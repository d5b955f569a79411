#include "planner/error.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace zeroplan {
namespace {

TEST_CASE("a problem is told on one line, with whatever is known") {
  CHECK(Problem{"m.yaml", 12, "hidden", "found \"12k\""}.text() == "m.yaml:12: hidden: found \"12k\"");
  CHECK(Problem{"m.yaml", 12, "", "bad"}.text() == "m.yaml:12: bad");
  CHECK(Problem{"m.yaml", 0, "hidden", "bad"}.text() == "m.yaml: hidden: bad");
  CHECK(Problem{"--tp", 0, "", "bad"}.text() == "--tp: bad");
  CHECK(Problem{"", 0, "", "bad"}.text() == "bad");
  CHECK(Problem{"", 0, "a.b", "bad"}.text() == "a.b: bad");
  CHECK(Problem{"", 3, "", "bad"}.text() == "line 3: bad");
}

TEST_CASE("what a file says cannot break the line or the terminal") {
  const std::string text = Problem{"a\nb", 1, "k\x1b[31m", "one\ntwo"}.text();
  CHECK(text == "a\\nb:1: k\\x1b[31m: one\\ntwo");
  CHECK(Problem{"f", 1, std::string(1'000'000, 'k'), "bad"}.text().size() < 1000);
}

TEST_CASE("an error holds every problem, one line each") {
  const ConfigurationError error({{"a", 1, "", "first"}, {"b", 2, "", "second"}});
  CHECK(std::string(error.what()) == "a:1: first\nb:2: second");
  REQUIRE(error.problems().size() == 2);
  CHECK(error.problems()[1].source == "b");
  CHECK(ConfigurationError(Problem{"a", 1, "", "only"}).problems().size() == 1);
  CHECK(ConfigurationError(std::vector<Problem>{}).problems().size() == 1);
}

TEST_CASE("problems are collected and thrown together") {
  Problems problems;
  CHECK(problems.empty());
  CHECK_NOTHROW(problems.throw_if_any());
  problems.add({"a", 1, "", "first"});
  problems.add(ConfigurationError({{"b", 2, "", "second"}, {"c", 3, "", "third"}}));
  REQUIRE(problems.list().size() == 3);
  try {
    problems.throw_if_any();
    FAIL("nothing was thrown");
  } catch (const ConfigurationError& error) {
    CHECK(error.problems().size() == 3);
    CHECK(error.problems()[2].message == "third");
  }
}

TEST_CASE("the nearest name is the one that a slip of the fingers explains") {
  const std::vector<std::string> names = {"hidden", "layers", "heads", "kv_heads", "head_dim"};
  CHECK(nearest_name("hiden", names) == "hidden");
  CHECK(nearest_name("hdiden", names) == "hidden");
  CHECK(nearest_name("layer", names) == "layers");
  CHECK(nearest_name("Heads", names) == "heads");
  CHECK(nearest_name("kv-heads", names) == "kv_heads");
  CHECK(nearest_name("KVHeads", names) == "kv_heads");
  CHECK(nearest_name("vocabulary", names).empty());
  CHECK(nearest_name("", names).empty());
  CHECK(nearest_name("hidden", {}).empty());
  CHECK(nearest_name("hidden", {"", "-"}).empty());
}

TEST_CASE("the nearest name is at most a third of the longer word away") {
  CHECK(nearest_name("abc", {"abd"}) == "abd");           // 1 of 3
  CHECK(nearest_name("ab", {"ad"}).empty());              // 1 of 2
  CHECK(nearest_name("abcdef", {"abcdxy"}) == "abcdxy");  // 2 of 6
  CHECK(nearest_name("abcde", {"abcxy"}).empty());        // 2 of 5
  CHECK(nearest_name("abcd", {"abcdef"}) == "abcdef");    // 2 of 6, by length alone
  CHECK(nearest_name("abcd", {"abcdefg"}).empty());       // 3 of 7
}

TEST_CASE("a word of megabytes costs nothing to compare") {
  CHECK(nearest_name(std::string(8U << 20U, 'x'), {"hidden", "layers"}).empty());
}

TEST_CASE("a shown value has its unprintable bytes escaped and is cut at 60 characters") {
  CHECK(quoted("") == "\"\"");
  CHECK(quoted("12k") == "\"12k\"");
  CHECK(quoted("a\nb\tc") == "\"a\\nb\\tc\"");
  CHECK(quoted(std::string("a\0b", 3)) == "\"a\\x00b\"");
  CHECK(quoted("\x1b[31m\x7f") == "\"\\x1b[31m\\x7f\"");
  CHECK(quoted("\xff") == "\"\\xff\"");
  CHECK(quoted("gr\xc3\xb6\xc3\x9f") == "\"gr\xc3\xb6\xc3\x9f\"");
  CHECK(quoted(std::string("\xe2\x80") + "\xae") ==
        "\"\\xe2\\x80\\xae\"");                            // U+202E turns the rest of the line around
  CHECK(quoted("\xc0\x80") == "\"\\xc0\\x80\"");           // NUL in an overlong form
  CHECK(quoted("\xed\xa0\x80") == "\"\\xed\\xa0\\x80\"");  // a surrogate
  CHECK(quoted("\xe2\x82") == "\"\\xe2\\x82\"");           // cut short
  CHECK(quoted(std::string(59, 'x')) == "\"" + std::string(59, 'x') + "\"");
  CHECK(quoted(std::string(60, 'x')) == "\"" + std::string(60, 'x') + "\"");
  CHECK(quoted(std::string(61, 'x')) == "\"" + std::string(60, 'x') + "...\"");
}

}  // namespace
}  // namespace zeroplan
