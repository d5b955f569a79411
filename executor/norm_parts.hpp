#pragma once

#include <array>
#include <cmath>

#include "executor/host_device.hpp"
#include "planner/program/step_program.hpp"

// The squared norm as fp32 parts whose sums over ranks are exact (Scalar::norm_parts): fixed-point digits of
// 14 bits from 2^80 down, so 1,024 ranks fit fp32's 24 bits, and what is below 2^-46 as it is in the last
// one.
namespace zeroplan::executor {

using NormParts = std::array<float, program::kNormParts>;

inline constexpr int kNormPartBits = 14;
inline constexpr int kLargestNormExponent = 80;

// Writes kNormParts parts.
ZEROPLAN_HOST_DEVICE inline void set_norm_parts(double squared, float* parts) {
  int exponent = kLargestNormExponent;
  for (std::int64_t i = 0; i + 1 < program::kNormParts; ++i) {
    exponent -= kNormPartBits;
    const double unit = std::ldexp(1.0, exponent);
    const double multiple = std::trunc(squared / unit) * unit;
    parts[i] = static_cast<float>(multiple);
    squared -= multiple;
  }
  parts[program::kNormParts - 1] = static_cast<float>(squared);
}

inline NormParts norm_parts(double squared) {
  NormParts parts{};
  set_norm_parts(squared, parts.data());
  return parts;
}

ZEROPLAN_HOST_DEVICE inline double squared_norm(const float* parts) {
  double sum = 0;
  for (std::int64_t i = program::kNormParts; i-- > 0;) sum += static_cast<double>(parts[i]);
  return sum;
}

}  // namespace zeroplan::executor
