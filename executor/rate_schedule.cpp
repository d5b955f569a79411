#include "executor/rate_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace zeroplan::executor {

const std::vector<std::string>& decay_names() {
  static const std::vector<std::string> names{"constant", "linear", "cosine"};
  return names;
}

std::string_view name_of(RateSchedule::Decay decay) { return decay_names()[static_cast<std::size_t>(decay)]; }

double rate_at(const RateSchedule& schedule, double highest, std::int64_t update) {
  using Decay = RateSchedule::Decay;
  if (update <= schedule.warm_up_steps) {
    return highest * static_cast<double>(update) / static_cast<double>(schedule.warm_up_steps);
  }
  if (schedule.decay == Decay::constant) return highest;
  const std::int64_t length = std::max<std::int64_t>(1, schedule.steps - schedule.warm_up_steps);
  const std::int64_t done = std::min(update - schedule.warm_up_steps - 1, length);
  const double part = static_cast<double>(done) / static_cast<double>(length);
  const double left =
      schedule.decay == Decay::linear ? 1 - part : 0.5 * (1 + std::cos(std::numbers::pi * part));
  return schedule.minimum + (highest - schedule.minimum) * left;
}

}  // namespace zeroplan::executor
