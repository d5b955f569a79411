#include "planner/program/step_log.hpp"

#include <algorithm>
#include <cmath>

namespace zeroplan::program {

namespace {

constexpr std::size_t kMostKept = 1024;

}  // namespace

void StepLog::push_back(const StepMeasurement& step) {
  if (last_is_extra_) kept_.pop_back();
  last_is_extra_ = taken_ % kept_every_ != 0;
  if (!last_is_extra_ && kept_.size() == kMostKept) {
    std::size_t left = 0;
    for (std::size_t i = 0; i < kept_.size(); i += 2) kept_[left++] = kept_[i];
    kept_.resize(left);
    kept_every_ *= 2;
    last_is_extra_ = taken_ % kept_every_ != 0;
  }
  kept_.push_back(step);
  ++taken_;
  const bool has_loss = std::isfinite(step.loss) && step.loss > 0;  // a cross-entropy is above 0
  if (!has_loss && !first_without_loss_) first_without_loss_ = step;
  if (!step.skipped && !(step.gradient_norm > 0) && !first_without_gradient_) first_without_gradient_ = step;
  if (step.skipped && step.loss_scale <= 1 && !first_overflow_) first_overflow_ = step;
  if (step.warm_up) return;
  skipped_ += step.skipped ? 1 : 0;
  fastest_seconds_ = measured_ == 0 ? step.seconds : std::min(fastest_seconds_, step.seconds);
  slowest_seconds_ = std::max(slowest_seconds_, step.seconds);
  measured_seconds_ += step.seconds;
  ++measured_;
}

}  // namespace zeroplan::program
