#include "planner/units.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <stdexcept>

namespace zeroplan {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST_CASE("binary units") {
  CHECK(kKiB == 1024);
  CHECK(kMiB == 1048576);
  CHECK(kGiB == 1073741824);
  CHECK(kGB == 1000000000.0);
}

TEST_CASE("div_ceil counts the pieces that hold all of it") {
  for (std::int64_t b : {1, 2, 3, 7, 64, 1024}) {
    for (std::int64_t a = 0; a <= 3 * b + 1; ++a) {
      CAPTURE(a);
      CAPTURE(b);
      std::int64_t pieces = 0;
      while (pieces * b < a) ++pieces;
      CHECK(div_ceil(a, b) == pieces);
      CHECK(round_up(a, b) == pieces * b);
    }
  }
  CHECK(div_ceil(kMost, 1) == kMost);
  CHECK(div_ceil(kMost, 2) == (std::int64_t{1} << 62));
  CHECK(div_ceil(kMost, kMost) == 1);
}

TEST_CASE("div_exact divides or throws") {
  CHECK(div_exact(0, 7) == 0);
  CHECK(div_exact(21, 7) == 3);
  CHECK(div_exact(-21, 7) == -3);
  CHECK_THROWS_AS(div_exact(20, 7), std::logic_error);
  CHECK_THROWS_AS(div_exact(22, 7), std::logic_error);
  CHECK_THROWS_AS(div_exact(1, 0), std::logic_error);
}

TEST_CASE("narrow keeps the value or throws") {
  CHECK(narrow<std::int32_t>(std::int64_t{2147483647}) == 2147483647);
  CHECK_THROWS_AS(narrow<std::int32_t>(std::int64_t{2147483648}), std::logic_error);
  CHECK(narrow<std::uint8_t>(255) == 255);
  CHECK_THROWS_AS(narrow<std::uint8_t>(256), std::logic_error);
  CHECK_THROWS_AS(narrow<std::uint64_t>(std::int64_t{-1}), std::logic_error);
  CHECK_THROWS_AS(narrow<std::int64_t>(std::uint64_t{1} << 63U), std::logic_error);
  CHECK(narrow<std::int64_t>(std::uint64_t{1} << 62U) == (std::int64_t{1} << 62));
}

}  // namespace
}  // namespace zeroplan
