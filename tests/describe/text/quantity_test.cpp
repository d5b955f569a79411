#include "planner/describe/text/quantity.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

namespace zeroplan::describe {
namespace {

constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr double kLowest = std::numeric_limits<double>::lowest();
constexpr double kHighest = std::numeric_limits<double>::max();

std::string refusal(auto&& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("whole numbers as people write them") {
  CHECK(parse_integer("0", 0, kMost) == 0);
  CHECK(parse_integer("1", 0, kMost) == 1);
  CHECK(parse_integer("1_000", 0, kMost) == 1000);
  CHECK(parse_integer("6_738_415_616", 0, kMost) == 6738415616);
  CHECK(parse_integer("5e8", 0, kMost) == 500000000);
  CHECK(parse_integer("5E+8", 0, kMost) == 500000000);
  CHECK(parse_integer("1.5e9", 0, kMost) == 1500000000);
  CHECK(parse_integer("1000e-3", 0, kMost) == 1);
  CHECK(parse_integer("2.0", 0, kMost) == 2);
  CHECK(parse_integer("0e999999", 0, kMost) == 0);
  CHECK(parse_integer("-1", -1, kMost) == -1);
  CHECK(parse_integer("+1", -1, kMost) == 1);
  CHECK(parse_integer("9223372036854775807", 0, kMost) == kMost);
  CHECK(parse_integer("9.223372036854775807e18", 0, kMost) == kMost);
  CHECK(parse_integer("9007199254740993", 0, kMost) == 9007199254740993);  // 2^53 + 1: no double holds it
  CHECK(parse_integer("-9223372036854775807", kLeast, kMost) == -kMost);
}

TEST_CASE("what is not a whole number is refused") {
  for (const std::string_view text : {"",
                                      " ",
                                      "012",
                                      "00",
                                      "0_1",
                                      "_1",
                                      "1_",
                                      "1__0",
                                      "-",
                                      "+",
                                      "e",
                                      "e5",
                                      ".",
                                      "1e",
                                      "1e+",
                                      "1 ",
                                      " 1",
                                      "1\n",
                                      "1.5",
                                      "1e-1",
                                      "0.5",
                                      "1e400",
                                      "1e999999",
                                      "1e99999999999999999999999",
                                      "9223372036854775808",
                                      "1e19",
                                      "0x10",
                                      "0b1",
                                      "0o7",
                                      "NaN",
                                      "nan",
                                      ".nan",
                                      "inf",
                                      ".inf",
                                      "-.inf",
                                      "Infinity",
                                      "1,000",
                                      "1.000.000",
                                      "12k",
                                      "1d3",
                                      "1f",
                                      "true",
                                      "--1",
                                      "+-1",
                                      "1-",
                                      "\xef\xbc\x91"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_integer(text, kLeast, kMost), std::invalid_argument);
  }
  CHECK_THROWS_AS(parse_integer(std::string_view("1\0", 2), 0, kMost), std::invalid_argument);
  CHECK_THROWS_AS(parse_integer(std::string(1'000'000, '9'), 0, kMost), std::invalid_argument);
}

TEST_CASE("whole numbers stay within their limits") {
  CHECK_THROWS_AS(parse_integer("9", 10, 20), std::invalid_argument);
  CHECK(parse_integer("10", 10, 20) == 10);
  CHECK(parse_integer("11", 10, 20) == 11);
  CHECK(parse_integer("19", 10, 20) == 19);
  CHECK(parse_integer("20", 10, 20) == 20);
  CHECK_THROWS_AS(parse_integer("21", 10, 20), std::invalid_argument);
  CHECK_THROWS_AS(parse_integer("-1", 0, 20), std::invalid_argument);
  CHECK_THROWS_AS(parse_integer("-0", 0, 20), std::invalid_argument);
  CHECK_THROWS_AS(parse_integer("+1", 0, 20), std::invalid_argument);
}

TEST_CASE("a refusal says what was found and what was expected") {
  CHECK(refusal([] { parse_integer("12k", 1, 1048576); }) ==
        "found \"12k\", expected a whole number from 1 to 1048576");
  CHECK(refusal([] { parse_integer("012", 1, 64); }) ==
        "found \"012\", expected a whole number from 1 to 64 without a zero in front");
  CHECK(refusal([] { parse_integer("x", 1, kMost); }) ==
        "found \"x\", expected a whole number of at least 1");
  CHECK(refusal([] { parse_real("2", 0, 1); }) == "found \"2\", expected a finite number from 0 to 1");
  CHECK(refusal([] { parse_real(".nan", kLowest, kHighest); }) == "found \".nan\", expected a finite number");
  CHECK(refusal([] { parse_boolean("maybe"); }) == "found \"maybe\", expected true or false");
  CHECK(refusal([] { parse_count("7.5", 1, kMost); }).find("125k, 340M, 7.5B or 1T") != std::string::npos);
  CHECK(refusal([] { parse_integer("a\nb", 1, 2); }).find('\n') == std::string::npos);
}

TEST_CASE("real numbers") {
  CHECK(parse_real("0", 0, 1) == 0.0);
  CHECK(parse_real("0.1", 0, 1) == 0.1);
  CHECK(parse_real(".1", 0, 1) == 0.1);
  CHECK(parse_real("1.", 0, 1) == 1.0);
  CHECK(parse_real("1e-5", 0, 1) == 1e-5);
  CHECK(parse_real("-2.5E3", kLowest, kHighest) == -2500.0);
  CHECK(parse_real("312.0", 0, 1000) == 312.0);
  CHECK(parse_real("1.7976931348623157e308", 0, kHighest) == kHighest);
  CHECK(parse_real("1e-400", 0, 1) == 0.0);
  CHECK(parse_real("0.000000000000000000000000000001", 0, 1) == 1e-30);
}

TEST_CASE("what is not a finite decimal number within its limits is refused") {
  for (const std::string_view text :
       {"",       "NaN",      ".nan", "nan",   "inf",     "-inf",    ".inf", "infinity", "1e400",
        "-1e400", "1e999999", "0x10", "0x1p3", "1_000.5", "012",     "00.5", "1.5 ",     " 1.5",
        "1.5.2",  "1,5",      "e5",   ".",     "-",       "1.8e308", "50%"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_real(text, kLowest, kHighest), std::invalid_argument);
  }
  CHECK_THROWS_AS(parse_real("-0.001", 0, 1), std::invalid_argument);
  CHECK_THROWS_AS(parse_real("1.0001", 0, 1), std::invalid_argument);
}

TEST_CASE("booleans") {
  for (const std::string_view text : {"true", "True", "yes", "Yes", "on", "On"}) CHECK(parse_boolean(text));
  for (const std::string_view text : {"false", "False", "no", "No", "off", "Off"})
    CHECK_FALSE(parse_boolean(text));
  for (const std::string_view text : {"", "TRUE", "tRue", "1", "0", "y", "n", "true "}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_boolean(text), std::invalid_argument);
  }
}

TEST_CASE("counts with a decimal suffix") {
  CHECK(parse_count("0", 0, kMost) == 0);
  CHECK(parse_count("7.5B", 0, kMost) == 7500000000);
  CHECK(parse_count("340M", 0, kMost) == 340000000);
  CHECK(parse_count("125k", 0, kMost) == 125000);
  CHECK(parse_count("1T", 0, kMost) == 1000000000000);
  CHECK(parse_count("2.851e9", 0, kMost) == 2851000000);
  CHECK(parse_count("6_738_415_616", 0, kMost) == 6738415616);
  CHECK(parse_count("1.001k", 0, kMost) == 1001);
  CHECK_THROWS_AS(parse_count("0.0005k", 0, 1), std::invalid_argument);
  for (const std::string_view text :
       {"", "B", "7.5", "1.0001k", "7.5G", "7.5b", "7 B", "7.5 B", "7.5BB", "7.5Bn", "012M", "-1B", "+1B",
        "1e30B", "10000000000B", "NaN", "infB", "0x1B"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_count(text, 0, kMost), std::invalid_argument);
  }
}

TEST_CASE("bytes: powers of 1000 and powers of 1024 are different units") {
  CHECK(parse_bytes("0") == 0);
  CHECK(parse_bytes("1") == 1);
  CHECK(parse_bytes("1024") == 1024);
  CHECK(parse_bytes("1B") == 1);
  CHECK(parse_bytes("1kB") == 1000);
  CHECK(parse_bytes("500MB") == 500000000);
  CHECK(parse_bytes("10GB") == 10000000000);
  CHECK(parse_bytes("1TB") == 1000000000000);
  CHECK(parse_bytes("1KiB") == 1024);
  CHECK(parse_bytes("1MiB") == 1048576);
  CHECK(parse_bytes("10 GiB") == 10737418240);
  CHECK(parse_bytes("1TiB") == 1099511627776);
  CHECK(parse_bytes("31.75GiB") == 34091302912);  // 127 * 2^28
  CHECK(parse_bytes("31.75 GiB") == 34091302912);
  CHECK(parse_bytes("1e3MiB") == 1048576000);
  CHECK(parse_bytes("5e8") == 500000000);
  CHECK(parse_bytes("5e-1GB") == 500000000);
}

TEST_CASE("bytes come out whole") {
  CHECK(parse_bytes("1.5") == 2);
  CHECK(parse_bytes("1.4") == 1);
  CHECK(parse_bytes("0.0004kB") == 0);
  CHECK(parse_bytes("0.0006kB") == 1);
  CHECK(parse_bytes("1.0009765625KiB") == 1025);
  CHECK(parse_bytes("1e-999999GB") == 0);
  CHECK(parse_bytes("9007199254740993B") == 9007199254740993);
  CHECK(parse_bytes("9223372036854775807") == kMost);
  CHECK(parse_bytes("8388607TiB") == (kMost >> 40) * (std::int64_t{1} << 40));
  CHECK_THROWS_AS(parse_bytes("9223372036854775808"), std::invalid_argument);
  CHECK_THROWS_AS(parse_bytes("9223372036854775807.5"), std::invalid_argument);
  CHECK_THROWS_AS(parse_bytes("8388608TiB"), std::invalid_argument);
  CHECK_THROWS_AS(parse_bytes("1e400GB"), std::invalid_argument);
}

TEST_CASE("an unclear unit is refused with the two spellings") {
  for (const std::string_view text :
       {"10G", "10g", "10Gb", "10gb", "10gB", "10gib", "10GIB", "10Gib", "10 G"}) {
    CAPTURE(text);
    const std::string message = refusal([&] { parse_bytes(text); });
    CHECK(message.find("10GB (1000^3 bytes)") != std::string::npos);
    CHECK(message.find("10GiB (1024^3 bytes)") != std::string::npos);
  }
  CHECK(refusal([] { parse_bytes("512M"); }).find("512MB (1000^2 bytes) or 512MiB (1024^2 bytes)") !=
        std::string::npos);
  CHECK(refusal([] { parse_bytes("4K"); }).find("4kB (1000^1 bytes) or 4KiB (1024^1 bytes)") !=
        std::string::npos);
  CHECK(refusal([] { parse_bytes("1T"); }).find("1TB (1000^4 bytes) or 1TiB (1024^4 bytes)") !=
        std::string::npos);
}

TEST_CASE("what is not a size is refused") {
  for (const std::string_view text :
       {"",    "G",     "GB",     "B",     " 1GB", "1GB ", "1  GB", "1\tGB", "-1GB", "-0",     "+1GB",
        "NaN", "infGB", "0x10GB", "012GB", "1XB",  "1GBB", "1GiBs", "1 ",    "1e",   "ten GB", "1PB"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_bytes(text), std::invalid_argument);
  }
}

}  // namespace
}  // namespace zeroplan::describe
