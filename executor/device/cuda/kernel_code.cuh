#pragma once

#include <cstddef>
#include <cstdint>

// What every kernel body includes. Kernels are compiled twice from one source: by nvcc for the product, and by the
// host's compiler (ZEROPLAN_EMULATED) for tests, where tests/emulation/block gives CUDA's spelling to the same code.
#if defined(ZEROPLAN_EMULATED)
#include "block/emulator.hpp"
#include "executor/half.hpp"
#define ZEROPLAN_UNROLL
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define ZEROPLAN_UNROLL _Pragma("unroll")
#endif

namespace zeroplan::executor::cuda {

// ---- elements: stored as they are, computed with in fp32 ----

struct bf16 {
  std::uint16_t bits;
};
struct fp16 {
  std::uint16_t bits;
};

__device__ __forceinline__ float to_float(float value) { return value; }

#if defined(ZEROPLAN_EMULATED)
inline float to_float(bf16 value) { return float_from_bf16(value.bits); }
inline float to_float(fp16 value) { return float_from_fp16(value.bits); }
inline void round_to(float value, bf16& to) { to.bits = bf16_from_float(value); }
inline void round_to(float value, fp16& to) { to.bits = fp16_from_float(value); }
inline std::uint32_t pair_of(float low, float high, bf16) {
  return std::uint32_t{bf16_from_float(high)} << 16U | bf16_from_float(low);
}
inline std::uint32_t pair_of(float low, float high, fp16) {
  return std::uint32_t{fp16_from_float(high)} << 16U | fp16_from_float(low);
}
#else
__device__ __forceinline__ float to_float(bf16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16U);
}
__device__ __forceinline__ float to_float(fp16 value) { return __half2float(__ushort_as_half(value.bits)); }
__device__ __forceinline__ void round_to(float value, bf16& to) {
  to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
}
__device__ __forceinline__ void round_to(float value, fp16& to) {
  to.bits = __half_as_ushort(__float2half_rn(value));
}
// Two elements in 32 bits, the first one in the low half.
__device__ __forceinline__ std::uint32_t pair_of(float low, float high, bf16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
__device__ __forceinline__ std::uint32_t pair_of(float low, float high, fp16) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
#endif
__device__ __forceinline__ void round_to(float value, float& to) { to = value; }

// To nearest, ties to even.
template <class T>
__device__ __forceinline__ T from_float(float value) {
  T result;
  round_to(value, result);
  return result;
}

// ---- 16 bytes at a time ----

struct alignas(16) Words {
  std::uint32_t x, y, z, w;
};

// So many elements are 16 bytes.
template <class T>
inline constexpr int kVector = static_cast<int>(16 / sizeof(T));

// Whether 16-byte accesses to every row are aligned.
template <class T>
__host__ __device__ inline bool takes_vectors(const T* pointer, std::int64_t stride) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0 && stride % kVector<T> == 0;
}

__device__ __forceinline__ Words load_words(const void* from) { return *static_cast<const Words*>(from); }
__device__ __forceinline__ void store_words(void* to, const Words& words) {
  *static_cast<Words*>(to) = words;
}

__device__ __forceinline__ void pair_to_floats(std::uint32_t pair, float* to, bf16) {
  to[0] = __uint_as_float(pair << 16U);
  to[1] = __uint_as_float(pair & 0xffff0000U);
}
__device__ __forceinline__ void pair_to_floats(std::uint32_t pair, float* to, fp16) {
  to[0] = to_float(fp16{static_cast<std::uint16_t>(pair & 0xffffU)});
  to[1] = to_float(fp16{static_cast<std::uint16_t>(pair >> 16U)});
}

__device__ __forceinline__ void words_to_floats(const Words& words, float (&to)[4], float) {
  to[0] = __uint_as_float(words.x);
  to[1] = __uint_as_float(words.y);
  to[2] = __uint_as_float(words.z);
  to[3] = __uint_as_float(words.w);
}
template <class T>
__device__ __forceinline__ void words_to_floats(const Words& words, float (&to)[8], T type) {
  pair_to_floats(words.x, to, type);
  pair_to_floats(words.y, to + 2, type);
  pair_to_floats(words.z, to + 4, type);
  pair_to_floats(words.w, to + 6, type);
}
__device__ __forceinline__ Words words_of(const float (&from)[4], float) {
  return {__float_as_uint(from[0]), __float_as_uint(from[1]), __float_as_uint(from[2]),
          __float_as_uint(from[3])};
}
template <class T>
__device__ __forceinline__ Words words_of(const float (&from)[8], T type) {
  return {pair_of(from[0], from[1], type), pair_of(from[2], from[3], type), pair_of(from[4], from[5], type),
          pair_of(from[6], from[7], type)};
}

// kVector<T> elements from or to a 16-byte boundary.
template <class T>
__device__ __forceinline__ void load_vector(const T* from, float (&to)[kVector<T>]) {
  words_to_floats(load_words(from), to, T{});
}
template <class T>
__device__ __forceinline__ void store_vector(T* to, const float (&from)[kVector<T>]) {
  store_words(to, words_of(from, T{}));
}

// ---- the block ----
//
// Kernels that must not spill say in their launch bounds how many of their blocks a multiprocessor has at least. Without
// that number ptxas may spill a few registers to make room for one block more.

// The block's dynamic shared memory; it is as large as the launch said. There is no other shared memory.
__device__ __forceinline__ std::byte* shared_bytes() {
#if defined(ZEROPLAN_EMULATED)
  return emulation::shared_memory();
#else
  extern __shared__ Words zeroplan_shared_words[];
  return reinterpret_cast<std::byte*>(zeroplan_shared_words);
#endif
}

// Of a grid of one dimension.
__device__ __forceinline__ std::int64_t global_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::int64_t grid_threads() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

inline constexpr int kWarpLanes = 32;
inline constexpr unsigned kAllLanes = 0xffffffffU;

// Of a whole warp; every lane has the same bits of it.
__device__ __forceinline__ float warp_sum(float value) {
  ZEROPLAN_UNROLL
  for (int lanes = kWarpLanes / 2; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kAllLanes, value, lanes);
  return value;
}
__device__ __forceinline__ float warp_maximum(float value) {
  ZEROPLAN_UNROLL
  for (int lanes = kWarpLanes / 2; lanes > 0; lanes /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, lanes));
  }
  return value;
}

// Of a whole block of one dimension and a multiple of 32 threads: each of `values` becomes what of_warp makes of all
// threads' in that place, in every thread. `slots` is shared memory of kCount numbers for each warp; it may be used again
// at once. `neutral` changes no result.
template <int kCount, class OfWarp>
__device__ __forceinline__ void over_block(const OfWarp& of_warp, float neutral, float (&values)[kCount],
                                           float* slots) {
  const auto warp = static_cast<int>(threadIdx.x) / kWarpLanes;
  const auto lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  const auto warps = static_cast<int>(blockDim.x) / kWarpLanes;
  ZEROPLAN_UNROLL
  for (int i = 0; i < kCount; ++i) {
    values[i] = of_warp(values[i]);
    if (lane == 0) slots[warp * kCount + i] = values[i];
  }
  __syncthreads();
  ZEROPLAN_UNROLL
  for (int i = 0; i < kCount; ++i) values[i] = of_warp(lane < warps ? slots[lane * kCount + i] : neutral);
  __syncthreads();
}
template <int kCount>
__device__ __forceinline__ void block_sums(float (&values)[kCount], float* slots) {
  over_block([](float value) { return warp_sum(value); }, 0, values, slots);
}
__device__ __forceinline__ float block_sum(float value, float* slots) {
  float values[1] = {value};
  block_sums(values, slots);
  return values[0];
}
__device__ __forceinline__ float block_maximum(float value, float* slots) {
  float values[1] = {value};
  over_block([](float of) { return warp_maximum(of); }, -INFINITY, values, slots);
  return values[0];
}

}  // namespace zeroplan::executor::cuda
