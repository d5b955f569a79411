#include "cli/step_progress.hpp"

#include <fmt/format.h>

#include <cmath>

#include "reports/validation_report.hpp"

namespace zeroplan::cli {

namespace {

constexpr std::int64_t kFewSteps = 24;
constexpr std::chrono::seconds kBetweenLines{1};

}  // namespace

void StepProgress::step(const program::StepMeasurement& step, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  ++done_;
  if (done_ == 1) after_first_ = now;  // the first step also touches the memory
  const bool shown =
      steps_ <= kFewSteps || done_ <= 2 || done_ == steps_ || now - last_line_ >= kBetweenLines;
  if (!shown) return;
  last_line_ = now;
  std::string line = reports::step_text(prediction_, step, step.step - done_ + steps_);
  if (steps_ > kFewSteps && done_ > 1 && done_ < steps_) {
    const double one =
        std::chrono::duration<double>(now - after_first_).count() / static_cast<double>(done_ - 1);
    line += fmt::format("  {} left", duration_text(one * static_cast<double>(steps_ - done_)));
  }
  out_ << "zeroplan: " << line << std::endl;
}

void StepProgress::say(const std::string& line) {
  const std::lock_guard lock(mutex_);
  out_ << "zeroplan: " << line << std::endl;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::ceil(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

}  // namespace zeroplan::cli
