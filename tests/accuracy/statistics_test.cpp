#include "planner/accuracy/statistics.hpp"

#include <doctest/doctest.h>

#include "planner/percentile.hpp"

using namespace zeroplan::accuracy;
using zeroplan::percentile;

TEST_CASE("percentiles are linear between the nearest values") {
  // 10 20 30 40: position 3 x 0.9 = 2.7, so 30 + 0.7 x 10.
  CHECK(percentile({40, 10, 30, 20}, 0.9) == doctest::Approx(37));
  CHECK(percentile({40, 10, 30, 20}, 0.5) == doctest::Approx(25));
  CHECK(percentile({40, 10, 30, 20}, 0) == 10);
  CHECK(percentile({40, 10, 30, 20}, 1) == 40);
  CHECK(percentile({5, 1, 3}, 0.5) == 3);
  CHECK(percentile({7}, 0.9) == 7);
}

TEST_CASE("errors: size without the sign, bias with it") {
  const ErrorStatistics statistics = error_statistics({0.1, -0.3, 0.2, -0.4});
  CHECK(statistics.runs == 4);
  CHECK(statistics.median == doctest::Approx(0.25));  // of 0.1 0.2 0.3 0.4
  CHECK(statistics.mean == doctest::Approx(0.25));
  CHECK(statistics.percentile_90 == doctest::Approx(0.37));  // 0.3 + 0.7 x 0.1
  CHECK(statistics.bias == doctest::Approx(-0.1));           // (0.1 - 0.3 + 0.2 - 0.4) / 4
  CHECK(error_statistics({}).runs == 0);
}

TEST_CASE("an interval's error is against its nearer end") {
  CHECK(interval_error(9, 10, 20) == doctest::Approx(-0.1));
  CHECK(interval_error(10, 10, 20) == 0);
  CHECK(interval_error(15, 10, 20) == 0);
  CHECK(interval_error(20, 10, 20) == 0);
  CHECK(interval_error(25, 10, 20) == doctest::Approx(0.25));
}
