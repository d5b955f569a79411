#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "executor/device/cpu/wide.hpp"
#include "planner/units.hpp"

namespace zeroplan::executor::cpu {

// e^x without branches, so that loops over it vectorise; within 2 units of the last place, 0 below the
// smallest normal number, and NaN for NaN. x = n ln 2 + r with |r| <= ln 2 / 2, then the series of e^r to
// r^7.
ZEROPLAN_INLINE inline float exponential(float x) {
  constexpr float kLowest = -87.33654F;    // ln of the smallest normal number
  constexpr float kHighest = 88.72283F;    // ln of the largest
  constexpr float kRounder = 12582912.0F;  // 1.5 x 2^23: adding it leaves the nearest integer in the low bits
  float bounded = x < kLowest ? kLowest : x;
  bounded = bounded > kHighest ? kHighest : bounded;
  float scaled = bounded * 1.44269504F;
  scaled = scaled > 127.0F ? 127.0F : scaled;
  const float rounded = scaled + kRounder;
  const float n = rounded - kRounder;
  const float r = (bounded - n * 0.693145752F) - n * 1.42860677e-6F;  // ln 2 in two parts
  float series = 1.0F / 5040;
  series = series * r + 1.0F / 720;
  series = series * r + 1.0F / 120;
  series = series * r + 1.0F / 24;
  series = series * r + 1.0F / 6;
  series = series * r + 0.5F;
  series = series * r + 1.0F;
  series = series * r + 1.0F;
  const auto exponent = (std::bit_cast<std::uint32_t>(rounded) + 127U) << 23U;
  float result = series * std::bit_cast<float>(exponent);
  result = x < kLowest ? 0.0F : result;
  return x > kHighest ? std::numeric_limits<float>::infinity() : result;
}

// -infinity of nothing; NaN is passed over. In lanes, as compilers do not reorder comparisons that NaN may
// reach.
ZEROPLAN_INLINE inline float largest(const float* values, Elements count) {
  constexpr Elements kLanes = 16;
  float lanes[kLanes];
  for (float& lane : lanes) lane = -std::numeric_limits<float>::infinity();
  Elements i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (Elements j = 0; j < kLanes; ++j) lanes[j] = values[i + j] > lanes[j] ? values[i + j] : lanes[j];
  }
  for (; i < count; ++i) lanes[0] = values[i] > lanes[0] ? values[i] : lanes[0];
  float result = lanes[0];
  for (const float lane : lanes) result = lane > result ? lane : result;
  return result;
}

ZEROPLAN_INLINE inline float sigmoid(float x) { return 1.0F / (1.0F + exponential(-x)); }

}  // namespace zeroplan::executor::cpu
