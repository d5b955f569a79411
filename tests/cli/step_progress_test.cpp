#include "cli/step_progress.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

using namespace zeroplan;
using cli::StepProgress;

namespace {

std::vector<std::string> lines_of(std::int64_t steps, std::chrono::milliseconds one,
                                  std::int64_t first_step = 1) {
  std::ostringstream out;
  const predict::Prediction prediction;
  StepProgress progress(out, prediction, steps);
  StepProgress::Clock::time_point now{std::chrono::hours(1)};
  for (std::int64_t i = 0; i < steps; ++i) {
    now += one;
    program::StepMeasurement step;
    step.step = first_step + i;
    step.seconds = std::chrono::duration<double>(one).count();
    progress.step(step, now);
  }
  std::vector<std::string> lines;
  std::istringstream text(out.str());
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a short run shows each step, a long one a line a second with the time that is left") {
  const std::vector<std::string> few = lines_of(4, std::chrono::milliseconds(2), 101);
  REQUIRE(few.size() == 4);
  CHECK(contains(few[0], "step 101/104 "));
  CHECK_FALSE(contains(few[1], "left"));

  const std::vector<std::string> many = lines_of(12'000, std::chrono::milliseconds(2));  // 24 s
  CHECK(many.size() <= 24 + 3);
  CHECK(many.size() >= 24);
  CHECK(contains(many[0], "step 1/12000 "));
  CHECK(contains(many[1], "step 2/12000 "));
  CHECK(contains(many[1], "  24 s left"));
  CHECK(contains(many.back(), "step 12000/12000 "));
  CHECK_FALSE(contains(many.back(), "left"));

  CHECK(lines_of(30, std::chrono::seconds(5)).size() == 30);
}

TEST_CASE("durations are in the units that people say") {
  CHECK(cli::duration_text(0.2) == "1 s");
  CHECK(cli::duration_text(59) == "59 s");
  CHECK(cli::duration_text(200) == "3 min 20 s");
  CHECK(cli::duration_text(18'600) == "5 h 10 min");
}
