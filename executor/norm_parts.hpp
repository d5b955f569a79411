#pragma once

#include <array>
#include <cmath>

#include "planner/program/step_program.hpp"

// The squared norm as fp32 parts whose sums over ranks are exact (Scalar::norm_parts): fixed-point digits of
// 14 bits from 2^80 down, so 1,024 ranks fit fp32's 24 bits, and what is below 2^-46 as it is in the last
// one.
namespace zeroplan::executor {

using NormParts = std::array<float, program::kNormParts>;

inline constexpr int kNormPartBits = 14;
inline constexpr int kLargestNormExponent = 80;

inline NormParts norm_parts(double squared) {
  NormParts parts{};
  int exponent = kLargestNormExponent;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    exponent -= kNormPartBits;
    const double unit = std::ldexp(1.0, exponent);
    const double multiple = std::trunc(squared / unit) * unit;
    parts[i] = static_cast<float>(multiple);
    squared -= multiple;
  }
  parts.back() = static_cast<float>(squared);
  return parts;
}

inline double squared_norm(const float* parts) {
  double sum = 0;
  for (std::int64_t i = program::kNormParts; i-- > 0;) sum += static_cast<double>(parts[i]);
  return sum;
}

}  // namespace zeroplan::executor
