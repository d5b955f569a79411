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

// e^(-x^2 / 2).
ZEROPLAN_INLINE inline float normal_bell(float x) { return exponential(-0.5F * x * x); }

// The part of a normal distribution beyond |x|, of x and normal_bell(x): bell t Q(t), t = 1 / (1 + 0.26 |x|), with a
// polynomial that was fitted to it for the least relative error, 2.5e-8.
ZEROPLAN_INLINE inline float normal_tail(float x, float bell) {
  const float t = 1.0F / (1.0F + 0.26F * (x < 0 ? -x : x));
  float series = 0.0305047832F;
  series = series * t - 0.152828364F;
  series = series * t + 0.251490408F;
  series = series * t - 0.150948032F;
  series = series * t + 0.16094726F;
  series = series * t + 0.0510279174F;
  series = series * t + 0.103030197F;
  series = series * t + 0.103016758F;
  series = series * t + 0.103759059F;
  return bell * t * series;
}

// cap tanh(x / cap). Below a half, where 1 - 2 / (e^2x + 1) would cancel, by its series to x^13.
ZEROPLAN_INLINE inline float soft_capped(float x, float cap) {
  const float t = x / cap;
  const float square = t * t;
  float series = 21844.0F / 6081075;
  series = series * square - 1382.0F / 155925;
  series = series * square + 62.0F / 2835;
  series = series * square - 17.0F / 315;
  series = series * square + 2.0F / 15;
  series = series * square - 1.0F / 3;
  series = series * square + 1.0F;
  const float whole = 1 - 2 / (exponential(2 * t) + 1);
  return cap * (square < 0.25F ? series * t : whole);
}

// Its derivative, of the capped value; 1 where nothing is capped.
ZEROPLAN_INLINE inline float cap_slope(float capped, float cap) {
  const float t = cap > 0 ? capped / cap : 0.0F;
  return 1 - t * t;
}

}  // namespace zeroplan::executor::cpu
