#pragma once

#include "executor/device/cuda/kernels/reals.cuh"
#include "executor/device/step_rules.hpp"
#include "executor/dropout.hpp"

// Masks of dropout, a byte for each element: 1 where it stays.
namespace zeroplan::executor::cuda {

__device__ __forceinline__ std::uint32_t step_of(const float* scalars) {
  return static_cast<std::uint32_t>(scalar_at(scalars, kStepNumber));
}

// Bit i: whether element offset + at[i] stays. With vectors, MaskNumbers::are_in_fours(). Where no mask is divided, the
// division of its numbers would only take registers.
template <bool kDivided>
__device__ __forceinline__ unsigned draw(const Dropout& dropout, std::uint32_t step, Index offset,
                                         const Eight<true>& at) {
  const std::uint64_t four = dropout.number_of<kDivided>(static_cast<std::uint64_t>(offset + at.first)) / 4;
  return dropout.kept_of_four(four, step) | dropout.kept_of_four(four + 1, step) << 4U;
}
template <bool kDivided>
__device__ __forceinline__ unsigned draw(const Dropout& dropout, std::uint32_t step, Index offset,
                                         const Eight<false>& at) {
  unsigned kept = 0;
  ZEROPLAN_UNROLL
  for (int i = 0; i < kEight; ++i) {
    if (!at.has(i)) continue;
    const std::uint64_t number = dropout.number_of<kDivided>(static_cast<std::uint64_t>(offset + at[i]));
    kept |= (dropout.kept_of_four(number / 4, step) >> (number % 4) & 1U) << i;
  }
  return kept;
}

// The four low bits of a nibble as bytes, and back.
__device__ __forceinline__ std::uint32_t bytes_of_bits(unsigned bits) {
  return (bits & 1U) | (bits & 2U) << 7U | (bits & 4U) << 14U | (bits & 8U) << 21U;
}
__device__ __forceinline__ unsigned bits_of_bytes(std::uint32_t bytes) {
  return (bytes & 1U) | (bytes >> 7U & 2U) | (bytes >> 14U & 4U) | (bytes >> 21U & 8U);
}

// With vectors, masks begin at multiples of 8 bytes.
__device__ __forceinline__ void write_mask(std::uint8_t* mask, Index offset, const Eight<true>& at,
                                           unsigned kept) {
  if (!at.any()) return;
  *reinterpret_cast<uint2*>(mask + offset + at.first) = uint2{bytes_of_bits(kept), bytes_of_bits(kept >> 4U)};
}
__device__ __forceinline__ void write_mask(std::uint8_t* mask, Index offset, const Eight<false>& at,
                                           unsigned kept) {
  ZEROPLAN_UNROLL
  for (int i = 0; i < kEight; ++i) {
    if (at.has(i)) mask[offset + at[i]] = static_cast<std::uint8_t>(kept >> i & 1U);
  }
}
__device__ __forceinline__ unsigned read_mask(const std::uint8_t* mask, Index offset, const Eight<true>& at) {
  if (!at.any()) return 0;
  const uint2 bytes = *reinterpret_cast<const uint2*>(mask + offset + at.first);
  return bits_of_bytes(bytes.x) | bits_of_bytes(bytes.y) << 4U;
}
__device__ __forceinline__ unsigned read_mask(const std::uint8_t* mask, Index offset,
                                              const Eight<false>& at) {
  unsigned kept = 0;
  ZEROPLAN_UNROLL
  for (int i = 0; i < kEight; ++i) {
    if (at.has(i) && mask[offset + at[i]] != 0) kept |= 1U << i;
  }
  return kept;
}

__device__ __forceinline__ void drop(unsigned kept, float scale, float (&values)[kEight]) {
  ZEROPLAN_UNROLL
  for (int i = 0; i < kEight; ++i) values[i] = (kept >> i & 1U) != 0 ? values[i] * scale : 0.0F;
}

}  // namespace zeroplan::executor::cuda
