#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace zeroplan::executor {

// The learning rate over a run: it rises in a straight line for `warm_up_steps` updates, the last of them at the
// highest rate, and then falls from there to `minimum`, which the update behind the last would have. A step that
// is skipped is no update.
struct RateSchedule {
  enum class Decay : std::uint8_t { constant, linear, cosine };

  std::int64_t warm_up_steps = 0;
  Decay decay = Decay::constant;
  std::int64_t steps = 0;  // updates of the whole run, warm-up included; constant needs none
  double minimum = 0;
};
// In the order of the enumeration.
const std::vector<std::string>& decay_names();
std::string_view name_of(RateSchedule::Decay decay);

// The rate of an update, counted from 1. With `highest` it is that of PyTorch's LinearLR(start_factor =
// 1 / warm_up_steps, total_iters = warm_up_steps - 1) followed by LinearLR or CosineAnnealingLR over the rest.
double rate_at(const RateSchedule& schedule, double highest, std::int64_t update);

}  // namespace zeroplan::executor
