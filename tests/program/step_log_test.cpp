#include "planner/program/step_log.hpp"

#include <doctest/doctest.h>

using zeroplan::program::StepLog;
using zeroplan::program::StepMeasurement;

namespace {

StepLog log_of(std::int64_t steps) {
  StepLog log;
  for (std::int64_t i = 0; i < steps; ++i) {
    StepMeasurement step;
    step.step = i + 1;
    step.warm_up = i < 2;
    step.seconds = static_cast<double>(i % 7) + 1;
    log.push_back(step);
  }
  return log;
}

}  // namespace

TEST_CASE("a log of steps keeps all of a short run, and of a long one some at equal distances and the last") {
  for (const std::int64_t steps : {1, 2, 3, 1023, 1024, 1025, 1026, 2048, 2049, 2050, 12'000, 100'003}) {
    CAPTURE(steps);
    const StepLog log = log_of(steps);
    CHECK(log.taken() == steps);
    CHECK(log.measured() == std::max<std::int64_t>(0, steps - 2));
    REQUIRE(log.size() <= 1025);
    CHECK(log[0].step == 1);
    CHECK(log.back().step == steps);
    if (steps <= 1024) CHECK(log.size() == static_cast<std::size_t>(steps));
    if (steps > 1024) CHECK(log.size() >= 512);
    for (std::size_t i = 0; i + 1 < log.size(); ++i) {
      CHECK((log[i].step - 1) % log.kept_every() == 0);
      CHECK(log[i + 1].step - log[i].step <= log.kept_every());
      CHECK(log[i + 1].step > log[i].step);
    }
  }
}

TEST_CASE("what a log of steps counts is of all measured steps") {
  const StepLog log = log_of(2 + 7 * 1000);
  CHECK(log.measured_seconds() == doctest::Approx(28 * 1000));
  CHECK(log.fastest_seconds() == 1);
  CHECK(log.slowest_seconds() == 7);
}
