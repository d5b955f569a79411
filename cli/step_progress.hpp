#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <ostream>
#include <string>

#include "planner/predict/prediction.hpp"
#include "planner/program/step_log.hpp"

namespace zeroplan::cli {

// Lines for people who wait for a run. Of a short run every step has one; of a long one the first steps, the last,
// and one a second, with the time that is left. Any thread may call.
class StepProgress {
 public:
  using Clock = std::chrono::steady_clock;

  // `steps`: of this run.
  StepProgress(std::ostream& out, const predict::Prediction& prediction, std::int64_t steps)
      : out_(out), prediction_(prediction), steps_(steps) {}

  void step(const program::StepMeasurement& step, Clock::time_point now = Clock::now());
  void say(const std::string& line);

 private:
  std::ostream& out_;
  const predict::Prediction& prediction_;
  std::int64_t steps_;
  std::mutex mutex_;  // guards what follows, and the stream
  std::int64_t done_ = 0;
  Clock::time_point after_first_{}, last_line_{};
};

// "12 s", "3 min 20 s", "5 h 10 min".
std::string duration_text(double seconds);

}  // namespace zeroplan::cli
