#pragma once

#include <cmath>

#include "executor/device/device.hpp"
#include "executor/host_device.hpp"
#include "executor/norm_parts.hpp"
#include "executor/step_scalars.hpp"

// What the instructions of a step do with the scalars, the same on every device. `scalars` are the buffer's kScalars
// numbers.
namespace zeroplan::executor {

ZEROPLAN_HOST_DEVICE inline float& scalar_at(float* scalars, program::Scalar which) {
  return scalars[static_cast<int>(which)];
}
ZEROPLAN_HOST_DEVICE inline float scalar_at(const float* scalars, program::Scalar which) {
  return scalars[static_cast<int>(which)];
}

inline constexpr float kSmallestScale = 1, kLargestScale = 16777216;

// gradient_norm: counts the squares of a rank's gradients, which carry the loss scale: `own` of those that it holds
// alone, `replicated` of those that all tensor-parallel ranks hold. What is not finite is an overflow.
ZEROPLAN_HOST_DEVICE inline void count_norm(float* scalars, double own, double replicated,
                                            bool counts_replicated) {
  constexpr double kLargestSum = 1.7976931348623157e308;
  constexpr double kLargestFloat = 3.4028234663852886e38;
  const double scale = static_cast<double>(scalar_at(scalars, program::Scalar::loss_scale));
  const double counted = (own + (counts_replicated ? replicated : 0)) / (scale * scale);
  if (own + replicated <= kLargestSum && counted <= kLargestFloat) {
    float* parts = &scalar_at(scalars, program::Scalar::norm_parts);
    set_norm_parts(squared_norm(parts) + counted, parts);
  } else {
    scalar_at(scalars, program::Scalar::overflow) += 1;
  }
}

// gradient_to_fp32: what gradients are multiplied with: unscaled, and clipped to a global norm of `clip_norm`
// where it is not 0.
ZEROPLAN_HOST_DEVICE inline float gradient_factor(const float* scalars, float clip_norm) {
  const float norm = std::sqrt(scalar_at(scalars, program::Scalar::squared_norm));
  float factor = 1.0F / scalar_at(scalars, kGradientScale);
  if (clip_norm > 0) {
    const float share = clip_norm / (norm + 1e-6F);
    factor *= share < 1.0F ? share : 1.0F;
  }
  return factor;
}

// scale_update; dynamic: see StepSettings::dynamic_loss_scale.
ZEROPLAN_HOST_DEVICE inline void update_scale(float* scalars, bool dynamic, std::int64_t window) {
  float& scale = scalar_at(scalars, program::Scalar::loss_scale);
  float& good_steps = scalar_at(scalars, program::Scalar::good_steps);
  scalar_at(scalars, kGradientScale) = scale;
  scalar_at(scalars, program::Scalar::squared_norm) =
      static_cast<float>(squared_norm(&scalar_at(scalars, program::Scalar::norm_parts)));
  scalar_at(scalars, program::Scalar::steps) += 1;
  if (scalar_at(scalars, program::Scalar::overflow) > 0) {
    good_steps = 0;
    if (dynamic) scale = scale / 2 > kSmallestScale ? scale / 2 : kSmallestScale;
    return;
  }
  good_steps += 1;
  if (dynamic && good_steps >= static_cast<float>(window)) {
    scale = scale * 2 < kLargestScale ? scale * 2 : kLargestScale;
    good_steps = 0;
  }
}

}  // namespace zeroplan::executor
