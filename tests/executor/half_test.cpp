#include "executor/half.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <random>
#include <vector>

#include "executor/half_arrays.hpp"

namespace {

using namespace zeroplan::executor;

// The value of a bit pattern by the definition of IEEE 754 formats, in doubles.
double value_of(std::uint16_t bits, int fraction_bits, int bias) {
  const int exponent = (bits & 0x7fff) >> fraction_bits;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const double one = exponent == 0 ? 0.0 : 1.0;
  return sign * std::ldexp(one + std::ldexp(fraction, -fraction_bits), (exponent == 0 ? 1 : exponent) - bias);
}

struct Format {
  const char* name;
  int fraction_bits, bias;
  std::uint16_t infinity;
  float (*to_float)(std::uint16_t);
  std::uint16_t (*from_float)(float);
};
zeroplan::program::DataType type_of(const Format& format) {
  return format.bias == 15 ? zeroplan::program::DataType::fp16 : zeroplan::program::DataType::bf16;
}
constexpr Format kFormats[] = {{"fp16", 10, 15, 0x7c00, float_from_fp16, fp16_from_float},
                               {"bf16", 7, 127, 0x7f80, float_from_bf16, bf16_from_float}};

}  // namespace

TEST_CASE("16-bit floats: every finite pattern has the value of its definition and comes back") {
  for (const Format& format : kFormats) {
    CAPTURE(format.name);
    int wrong_values = 0, wrong_returns = 0;
    for (std::uint16_t magnitude = 0; magnitude < format.infinity; ++magnitude) {
      for (const int sign : {0, 0x8000}) {
        const auto bits = static_cast<std::uint16_t>(magnitude | sign);
        const float value = format.to_float(bits);
        if (value != value_of(bits, format.fraction_bits, format.bias) || std::signbit(value) != (sign != 0))
          ++wrong_values;
        if (format.from_float(value) != bits) ++wrong_returns;
      }
    }
    CHECK(wrong_values == 0);
    CHECK(wrong_returns == 0);
  }
}

TEST_CASE("16-bit floats: rounding is to nearest, ties to even") {
  for (const Format& format : kFormats) {
    CAPTURE(format.name);
    int wrong = 0;
    for (std::uint16_t low = 0; low + 1 < format.infinity; ++low) {
      const auto high = static_cast<std::uint16_t>(low + 1);
      // Exact in fp32 but for the lowest bf16 subnormals, which are as fine as fp32's.
      const double middle = (value_of(low, format.fraction_bits, format.bias) +
                             value_of(high, format.fraction_bits, format.bias)) /
                            2;
      const auto tie = static_cast<float>(middle);
      if (tie != middle) continue;
      if (format.from_float(tie) != ((low & 1) == 0 ? low : high)) ++wrong;
      if (format.from_float(std::nextafter(tie, 0.0F)) != low) ++wrong;
      if (format.from_float(std::nextafter(tie, std::numeric_limits<float>::infinity())) != high) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("16-bit floats: overflow, infinity and NaN") {
  CHECK(fp16_from_float(65519.996F) == 0x7bff);
  CHECK(fp16_from_float(65520.0F) == 0x7c00);
  CHECK(fp16_from_float(-1e30F) == 0xfc00);
  CHECK(bf16_from_float(std::numeric_limits<float>::max()) == 0x7f80);
  for (const Format& format : kFormats) {
    CAPTURE(format.name);
    const float infinity = std::numeric_limits<float>::infinity();
    CHECK(format.to_float(format.infinity) == infinity);
    CHECK(format.from_float(-infinity) == (format.infinity | 0x8000));
    for (const std::uint32_t nan : {0x7fc00000U, 0x7f800001U, 0xff812345U}) {
      CHECK(std::isnan(format.to_float(format.from_float(std::bit_cast<float>(nan)))));
    }
    for (int pattern = format.infinity + 1; pattern < 0x8000; ++pattern) {
      if (!std::isnan(format.to_float(static_cast<std::uint16_t>(pattern))))
        FAIL_CHECK("not a NaN: " << pattern);
    }
  }
}

// Odd lengths: the last elements do not fill a vector.
TEST_CASE("16-bit floats: arrays are converted to the bits of one element at a time") {
  std::vector<std::uint16_t> patterns(0x10000 - 3);
  for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i + 3);
  std::mt19937 generator(7);
  std::vector<float> floats;
  floats.reserve(200'000);
  for (int i = 0; i < 100'003; ++i)
    floats.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(generator())));
  // Around every value of fp16, ties included.
  for (std::uint32_t i = 0; i < 0x10000; ++i) floats.push_back(std::bit_cast<float>((i << 12) + 0x37fff000U));
  for (const Format& format : kFormats) {
    CAPTURE(format.name);
    std::vector<float> to_floats(patterns.size());
    zeroplan::executor::floats_from_halves(type_of(format), patterns.data(), to_floats.data(),
                                           static_cast<zeroplan::Elements>(patterns.size()));
    int wrong = 0;
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      const float one = format.to_float(patterns[i]);
      if (std::bit_cast<std::uint32_t>(to_floats[i]) != std::bit_cast<std::uint32_t>(one)) ++wrong;
    }
    CHECK(wrong == 0);
    std::vector<std::uint16_t> to_halves(floats.size());
    zeroplan::executor::halves_from_floats(type_of(format), floats.data(), to_halves.data(),
                                           static_cast<zeroplan::Elements>(floats.size()));
    wrong = 0;
    for (std::size_t i = 0; i < floats.size(); ++i) {
      if (to_halves[i] != format.from_float(floats[i])) ++wrong;
    }
    CHECK(wrong == 0);
  }
}
