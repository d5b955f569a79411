#pragma once

#include <bit>
#include <cstdint>

// The 16-bit floating-point types by their bit patterns: IEEE 754 binary16 (fp16: 5 bits of exponent, 10 of
// fraction) and bfloat16 (8 and 7, the upper half of an fp32). To fp32 is exact; from fp32 rounds to nearest,
// ties to even, with overflow to infinity; a NaN stays a NaN. Without branches, so that loops over them
// become vector code.
namespace zeroplan::executor {

inline float float_from_fp16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t magnitude = (bits & 0x7fffU) << 13;  // exponent and fraction at their place in fp32
  const std::uint32_t normal = magnitude + (112U << 23);   // the biases of the exponents differ by 127 - 15
  // Infinity and NaN have all exponent bits set in both types; a NaN becomes quiet, as processors do it.
  const std::uint32_t quiet = magnitude > (31U << 23) ? 1U << 22 : 0U;
  const std::uint32_t special = (normal + (112U << 23)) | quiet;
  // Below 2^-14 the value is fraction x 2^-24: read it behind a leading one that is then taken away.
  const std::uint32_t leading_one = 113U << 23;
  const float subnormal = std::bit_cast<float>(magnitude + leading_one) - std::bit_cast<float>(leading_one);
  std::uint32_t result = magnitude >= (31U << 23) ? special : normal;
  result = magnitude < (1U << 23) ? std::bit_cast<std::uint32_t>(subnormal) : result;
  return std::bit_cast<float>(result | sign);
}

inline std::uint16_t fp16_from_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  // Half of the last kept place, less one where that place is even, and the carry does the rest (65520 and
  // above become infinity by it).
  const std::uint32_t rounded = (magnitude - (112U << 23) + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  // Below 2^-14: adding 0.5, whose last place is 2^-24, lets the adder round.
  const std::uint32_t half = std::bit_cast<std::uint32_t>(0.5F);
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - half;
  // Of a NaN, what fits is kept and made quiet, as processors do it.
  const std::uint32_t nan = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
  const std::uint32_t special = magnitude > 0x7f800000U ? nan : 0x7c00U;
  std::uint32_t result = magnitude < (113U << 23) ? subnormal : rounded;
  result = magnitude >= (143U << 23) ? special : result;
  return static_cast<std::uint16_t>(result | sign);
}

inline float float_from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

inline std::uint16_t bf16_from_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40U;
  return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}

}  // namespace zeroplan::executor
