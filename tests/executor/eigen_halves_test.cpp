#include <doctest/doctest.h>

#include <Eigen/Core>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "executor/half.hpp"
#include "executor/half_arrays.hpp"

// Conversions to and from 16 bits beside Eigen's: one by one, and as arrays.
namespace {

using namespace zeroplan::executor;
using zeroplan::program::DataType;

// The same bits, or a NaN of the same sign on both sides: which NaN it is differs between processors.
bool same(float a, float b) {
  if (std::isnan(a) && std::isnan(b)) return true;
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

template <class Half>
float to_float(std::uint16_t bits) {
  return static_cast<float>(Eigen::numext::bit_cast<Half>(bits));
}
template <class Half>
std::uint16_t from_float(float value) {
  return Eigen::numext::bit_cast<std::uint16_t>(Half(value));
}

// Every exponent, with fractions around the ties of both types, and random ones.
std::vector<float> floats_to_round() {
  std::vector<float> floats;
  std::mt19937 random(1);
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (const std::uint32_t half : {1U << 12, 1U << 15}) {  // of the last place of fp16 and of bf16
      for (std::uint32_t place = 0; place < 4; ++place) {
        for (const int beside : {-1, 0, 1}) {
          const std::uint32_t fraction =
              (place * 2 * half + half + static_cast<std::uint32_t>(beside)) & 0x7fffffU;
          floats.push_back(std::bit_cast<float>(exponent << 23 | fraction));
          floats.push_back(std::bit_cast<float>(0x80000000U | exponent << 23 | fraction));
        }
      }
    }
  }
  for (int i = 0; i < 2'000'000; ++i)
    floats.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  return floats;
}

template <class Half>
void check_type(DataType type, float (*one_to_float)(std::uint16_t), std::uint16_t (*one_from_float)(float)) {
  std::vector<std::uint16_t> patterns(65536);
  for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
  std::vector<float> array(patterns.size());
  floats_from_halves(type, patterns.data(), array.data(), static_cast<zeroplan::Elements>(patterns.size()));
  int wrong_values = 0, wrong_returns = 0;
  for (const std::uint16_t bits : patterns) {
    const float expected = to_float<Half>(bits);
    if (!same(one_to_float(bits), expected) || !same(array[bits], expected)) ++wrong_values;
    if (std::isnan(expected)) {
      if (!std::isnan(one_to_float(one_from_float(expected)))) ++wrong_returns;
    } else if (one_from_float(expected) != from_float<Half>(expected)) {
      ++wrong_returns;
    }
  }
  CHECK(wrong_values == 0);
  CHECK(wrong_returns == 0);

  const std::vector<float> floats = floats_to_round();
  std::vector<std::uint16_t> rounded(floats.size());
  halves_from_floats(type, floats.data(), rounded.data(), static_cast<zeroplan::Elements>(floats.size()));
  int wrong_roundings = 0;
  for (std::size_t i = 0; i < floats.size(); ++i) {
    if (std::isnan(floats[i])) {
      if (!std::isnan(to_float<Half>(rounded[i])) || !std::isnan(to_float<Half>(one_from_float(floats[i])))) {
        ++wrong_roundings;
      }
      continue;
    }
    const std::uint16_t expected = from_float<Half>(floats[i]);
    if (one_from_float(floats[i]) != expected || rounded[i] != expected) ++wrong_roundings;
  }
  CHECK(wrong_roundings == 0);
}

}  // namespace

TEST_CASE("fp16 beside Eigen's half: all patterns both ways, and two million roundings") {
  check_type<Eigen::half>(DataType::fp16, float_from_fp16, fp16_from_float);
}

TEST_CASE("bf16 beside Eigen's bfloat16: all patterns both ways, and two million roundings") {
  check_type<Eigen::bfloat16>(DataType::bf16, float_from_bf16, bf16_from_float);
}
