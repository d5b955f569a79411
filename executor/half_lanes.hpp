#pragma once

#include <cstdint>

#include "executor/half.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

// The types of real numbers as they are stored and as they are computed with: one element by portable code,
// and eight at a time where the processor has AVX2 and F16C. Both give the same bits.
namespace zeroplan::executor::lanes {

#if defined(__x86_64__)
#define ZEROPLAN_LANES __attribute__((target("avx2,f16c")))
#define ZEROPLAN_LANES_INLINE __attribute__((target("avx2,f16c"), always_inline))

inline constexpr std::size_t kLanes = 8;

// Sixteen elements in whatever order is cheapest for a type: its load_pair() and store_pair() agree on it.
struct Pair {
  __m256 first, second;
};

inline bool supported() {
  // Compilers do not all know F16C by name.
  static const bool yes = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __builtin_cpu_supports("avx2") != 0 && __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 &&
           (ecx & bit_F16C) != 0;
  }();
  return yes;
}
#endif

// Pairs of types for which the order in memory is the cheapest.
template <class Type, class Element>
struct PairsInOrder {
#if defined(__x86_64__)
  ZEROPLAN_LANES_INLINE static Pair load_pair(const Element* from) {
    return {Type::load_lanes(from), Type::load_lanes(from + kLanes)};
  }
  ZEROPLAN_LANES_INLINE static void store_pair(Element* to, const Pair& pair) {
    Type::store_lanes(to, pair.first);
    Type::store_lanes(to + kLanes, pair.second);
  }
#endif
};

struct Fp32 : PairsInOrder<Fp32, float> {
  using Stored = float;
  static float load(float value) { return value; }
  static float store(float value) { return value; }
#if defined(__x86_64__)
  ZEROPLAN_LANES_INLINE static __m256 load_lanes(const float* from) { return _mm256_loadu_ps(from); }
  ZEROPLAN_LANES_INLINE static void store_lanes(float* to, __m256 values) { _mm256_storeu_ps(to, values); }
#endif
};

struct Fp16 : PairsInOrder<Fp16, std::uint16_t> {
  using Stored = std::uint16_t;
  static float load(std::uint16_t bits) { return float_from_fp16(bits); }
  static std::uint16_t store(float value) { return fp16_from_float(value); }
#if defined(__x86_64__)
  ZEROPLAN_LANES_INLINE static __m256 load_lanes(const std::uint16_t* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  ZEROPLAN_LANES_INLINE static void store_lanes(std::uint16_t* to, __m256 values) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
  }
#endif
};

struct Bf16 {
  using Stored = std::uint16_t;
  static float load(std::uint16_t bits) { return float_from_bf16(bits); }
  static std::uint16_t store(float value) { return bf16_from_float(value); }
#if defined(__x86_64__)
  ZEROPLAN_LANES_INLINE static __m256 load_lanes(const std::uint16_t* from) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  ZEROPLAN_LANES_INLINE static void store_lanes(std::uint16_t* to, __m256 values) {
    const __m256i result = _mm256_srli_epi32(rounded_or_nan(values), 16);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                     _mm_packus_epi32(_mm256_castsi256_si128(result), _mm256_extracti128_si256(result, 1)));
  }
  // Elements 0, 2, 4 ... and 1, 3, 5 ...: each is the upper half of an fp32, once moved there.
  ZEROPLAN_LANES_INLINE static Pair load_pair(const std::uint16_t* from) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(bits, 16)),
            _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32(-0x10000)))};
  }
  ZEROPLAN_LANES_INLINE static void store_pair(std::uint16_t* to, const Pair& pair) {
    __m256i first = rounded(pair.first);
    __m256i second = rounded(pair.second);
    if (_mm256_movemask_ps(_mm256_cmp_ps(pair.first, pair.second, _CMP_UNORD_Q)) != 0) [[unlikely]] {
      first = rounded_or_nan(pair.first);
      second = rounded_or_nan(pair.second);
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm256_blend_epi16(_mm256_srli_epi32(first, 16), second, 0xaa));
  }

 private:
  // The upper halves of these are the results.
  ZEROPLAN_LANES_INLINE static __m256i rounded(__m256 values) {
    const __m256i bits = _mm256_castps_si256(values);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  }
  ZEROPLAN_LANES_INLINE static __m256i rounded_or_nan(__m256 values) {
    const __m256i quiet = _mm256_or_si256(_mm256_castps_si256(values), _mm256_set1_epi32(0x400000));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded(values), quiet, is_nan);
  }
#endif
};

}  // namespace zeroplan::executor::lanes
