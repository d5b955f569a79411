#pragma once

// Loops that the compiler vectorises, compiled for the baseline processor and once more for AVX2; which one
// runs is chosen when it runs. A body is a lambda that captures by value, so that nothing it writes can alias
// what it captured:
//
//   wide([=]() ZEROPLAN_INLINE {
//     ZEROPLAN_SIMD
//     for (Elements i = 0; i < n; ++i) y[i] = 2 * x[i];
//   });
//
// ZEROPLAN_SIMD_SUM(s) lets the sum s be formed in any (fixed) order.

#define ZEROPLAN_INLINE __attribute__((always_inline))
#define ZEROPLAN_PRAGMA(text) _Pragma(#text)
#define ZEROPLAN_SIMD ZEROPLAN_PRAGMA(omp simd)
#define ZEROPLAN_SIMD_SUM(...) ZEROPLAN_PRAGMA(omp simd reduction(+ : __VA_ARGS__))

namespace zeroplan::executor::cpu {

#if defined(__x86_64__)

template <class Body>
__attribute__((target("avx2"), noinline)) auto run_wide(Body body) {
  return body();
}

template <class Body>
auto wide(Body body) {
  if (__builtin_cpu_supports("avx2") != 0) return run_wide(body);
  return body();
}

#else

template <class Body>
auto wide(Body body) {
  return body();
}

#endif

}  // namespace zeroplan::executor::cpu
