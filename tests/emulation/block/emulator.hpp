#pragma once

#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "block/block.hpp"

// CUDA's spelling of what kernel bodies use, over the emulated block. What is not here, kernels do not use: static
// shared memory, 16-bit arithmetic, cooperative groups.
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

namespace zeroplan::emulation {

template <class T>
struct Shuffled {
  T value;
  unsigned from;  // lane of the warp
  T result;
};

// Each lane takes the value of another one; a lane that is not in the mask has none.
template <class T>
T shuffle(const char* operation, unsigned mask, T value, unsigned from, const CallPlace& where) {
  Shuffled<T> brought{value, from, value};
  meet(
      operation, mask,
      [](void* const* all, unsigned of) {
        for (unsigned i = 0; i < kWarp; ++i) {
          if ((of >> i & 1U) == 0) continue;
          auto& lane = *static_cast<Shuffled<T>*>(all[i]);
          if ((of >> lane.from & 1U) == 0)
            fail("a shuffle takes the value of a lane that is not in its mask");
          lane.result = static_cast<const Shuffled<T>*>(all[lane.from])->value;
        }
      },
      &brought, where);
  return brought.result;
}

struct Ballot {
  bool value;
  unsigned result;
};

inline unsigned ballot(const char* operation, unsigned mask, bool value, const CallPlace& where) {
  Ballot brought{value, 0};
  meet(
      operation, mask,
      [](void* const* all, unsigned of) {
        unsigned bits = 0;
        for (unsigned i = 0; i < kWarp; ++i) {
          if ((of >> i & 1U) != 0 && static_cast<const Ballot*>(all[i])->value) bits |= 1U << i;
        }
        for (unsigned i = 0; i < kWarp; ++i) {
          if ((of >> i & 1U) != 0) static_cast<Ballot*>(all[i])->result = bits;
        }
      },
      &brought, where);
  return brought.result;
}

}  // namespace zeroplan::emulation

// ---- barriers and warps; the place of a call is part of what lanes must agree on ----

using EmulatedPlace = zeroplan::emulation::CallPlace;

inline void __syncthreads(const EmulatedPlace& where = EmulatedPlace::current()) {
  zeroplan::emulation::barrier("__syncthreads", false, where);
}
inline int __syncthreads_count(int value, const EmulatedPlace& where = EmulatedPlace::current()) {
  return static_cast<int>(zeroplan::emulation::barrier("__syncthreads_count", value != 0, where));
}
inline int __syncthreads_or(int value, const EmulatedPlace& where = EmulatedPlace::current()) {
  return zeroplan::emulation::barrier("__syncthreads_or", value != 0, where) != 0 ? 1 : 0;
}
inline int __syncthreads_and(int value, const EmulatedPlace& where = EmulatedPlace::current()) {
  return zeroplan::emulation::barrier("__syncthreads_and", value == 0, where) == 0 ? 1 : 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffU, const EmulatedPlace& where = EmulatedPlace::current()) {
  zeroplan::emulation::order_warp("__syncwarp", mask, where);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32,
              const EmulatedPlace& where = EmulatedPlace::current()) {
  const unsigned lane = zeroplan::emulation::lane_in_warp();
  const auto wide = static_cast<unsigned>(width);
  const unsigned base = lane & ~(wide - 1U);
  return zeroplan::emulation::shuffle("__shfl_sync", mask, value,
                                      base | (static_cast<unsigned>(from) & (wide - 1U)), where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32,
                  const EmulatedPlace& where = EmulatedPlace::current()) {
  const unsigned lane = zeroplan::emulation::lane_in_warp();
  const auto wide = static_cast<unsigned>(width);
  const unsigned other = lane ^ static_cast<unsigned>(lanes);
  return zeroplan::emulation::shuffle("__shfl_xor_sync", mask, value,
                                      other / wide > lane / wide ? lane : other, where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int width = 32,
                   const EmulatedPlace& where = EmulatedPlace::current()) {
  const unsigned lane = zeroplan::emulation::lane_in_warp();
  const auto wide = static_cast<unsigned>(width);
  const bool inside = lane % wide + lanes < wide;
  return zeroplan::emulation::shuffle("__shfl_down_sync", mask, value, inside ? lane + lanes : lane, where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = 32,
                 const EmulatedPlace& where = EmulatedPlace::current()) {
  const unsigned lane = zeroplan::emulation::lane_in_warp();
  const bool inside = lane % static_cast<unsigned>(width) >= lanes;
  return zeroplan::emulation::shuffle("__shfl_up_sync", mask, value, inside ? lane - lanes : lane, where);
}
inline unsigned __ballot_sync(unsigned mask, int value,
                              const EmulatedPlace& where = EmulatedPlace::current()) {
  return zeroplan::emulation::ballot("__ballot_sync", mask, value != 0, where);
}
inline int __any_sync(unsigned mask, int value, const EmulatedPlace& where = EmulatedPlace::current()) {
  return zeroplan::emulation::ballot("__any_sync", mask, value != 0, where) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int value, const EmulatedPlace& where = EmulatedPlace::current()) {
  return zeroplan::emulation::ballot("__all_sync", mask, value != 0, where) == mask ? 1 : 0;
}

// ---- memory ----

// Lanes change only where they wait, so what is read and written in one go is atomic. It orders nothing else.
namespace zeroplan::emulation {

template <class T, class Change>
T change_atomically(T* at, const Change& change) {
  const std::atomic_ref<T> element(*at);
  const T before = element.load(std::memory_order_relaxed);
  element.store(change(before), std::memory_order_relaxed);
  return before;
}

}  // namespace zeroplan::emulation

template <class T>
T atomicAdd(T* to, T value) {
  return zeroplan::emulation::change_atomically(to, [&](T before) { return before + value; });
}
template <class T>
T atomicMax(T* to, T value) {
  return zeroplan::emulation::change_atomically(to,
                                                [&](T before) { return before < value ? value : before; });
}
template <class T>
T atomicOr(T* to, T value) {
  return zeroplan::emulation::change_atomically(to, [&](T before) { return before | value; });
}
template <class T>
T atomicCAS(T* to, T compared, T value) {
  return zeroplan::emulation::change_atomically(
      to, [&](T before) { return before == compared ? value : before; });
}
inline void __threadfence() {}
template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
T __ldcs(const T* from) {
  return *from;
}
template <class T>
void __stcs(T* to, T value) {
  *to = value;
}

// ---- arithmetic ----

using std::erf;
using std::exp;
using std::isfinite;
using std::isnan;
using std::log;

inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __ffs(int bits) { return bits == 0 ? 0 : std::countr_zero(static_cast<unsigned>(bits)) + 1; }
inline int __clz(int bits) { return std::countl_zero(static_cast<unsigned>(bits)); }
inline int __clzll(long long bits) { return std::countl_zero(static_cast<unsigned long long>(bits)); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<std::uint64_t>(a) * b >> 32U);
}
// The sums and products that the compiler must not contract.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
