#include "reports/numbers.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "reports/report.hpp"

using namespace zeroplan::reports;

TEST_CASE("thousands") {
  CHECK(thousands(0) == "0");
  CHECK(thousands(999) == "999");
  CHECK(thousands(1000) == "1,000");
  CHECK(thousands(-1000) == "-1,000");
  CHECK(thousands(-100) == "-100");
  CHECK(thousands(1557611200) == "1,557,611,200");
  CHECK(thousands(std::numeric_limits<std::int64_t>::min()) == "-9,223,372,036,854,775,808");
}

TEST_CASE("shortest reads back as the same number and looks like one to YAML 1.1") {
  CHECK(shortest(2) == "2.0");
  CHECK(shortest(0.1) == "0.1");
  for (const double value : {1e20, 1e300, 1e-300, 1.0 / 3, -0.0}) {
    CHECK(std::stod(shortest(value)) == value);
    CHECK(shortest(value).find('.') != std::string::npos);
  }
  CHECK(shortest(std::numeric_limits<double>::quiet_NaN()) == "null");
}

TEST_CASE("counts in words") {
  CHECK(counted(1, "node") == "1 node");
  CHECK(counted(25, "node") == "25 nodes");
  CHECK(short_count(124439808) == "124M");
  CHECK(short_count(1557611200) == "1.56B");
  CHECK(short_count(7500000000) == "7.5B");
  CHECK(short_count(999) == "999");
}

TEST_CASE("cells show their unit's number") {
  CHECK(cell_text(Gibibytes{34359738368}) == "32.00");
  CHECK(cell_text(Gigabytes{31400000000}) == "31.40");
  CHECK(cell_text(Percent{0.375}) == "37.5");
  CHECK(cell_text(Real{3, 2}) == "3.00");
  CHECK(cell_text(Cell{}).empty());
}
