#pragma once

#include "executor/device/cuda/kernel_code.cuh"

#if defined(ZEROPLAN_EMULATED)
#include "block/tensor_core.hpp"
#endif

// Instructions that C++ has no words for, each with a body for the host. PTX ISA 8.0: "mma.m16n8k16", "ldmatrix" and
// "cp.async" of sm_80 and up, "mma.m8n8k4" of sm_70. A warp calls them as a whole.
namespace zeroplan::executor::cuda {

#if defined(ZEROPLAN_EMULATED)

inline void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, bf16,
                     const emulation::CallPlace& where = emulation::CallPlace::current()) {
  emulation::multiply_16x8x16<float_from_bf16>(c, a, b0, b1, where);
}
inline void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, fp16,
                     const emulation::CallPlace& where = emulation::CallPlace::current()) {
  emulation::multiply_16x8x16<float_from_fp16>(c, a, b0, b1, where);
}
template <bool kByRows>
void multiply_quads(float (&low)[4], float (&high)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t b0,
                    std::uint32_t b1, const emulation::CallPlace& where = emulation::CallPlace::current()) {
  emulation::multiply_8x8x4<float_from_fp16, kByRows>(low, high, a0, a1, b0, b1, where);
}
inline void load_matrices(std::uint32_t (&to)[4], const void* row,
                          const emulation::CallPlace& where = emulation::CallPlace::current()) {
  emulation::load_matrices<false>(to, row, where);
}
inline void load_matrices_transposed(std::uint32_t (&to)[4], const void* row,
                                     const emulation::CallPlace& where = emulation::CallPlace::current()) {
  emulation::load_matrices<true>(to, row, where);
}
inline void start_copy(void* to_shared, const void* from, bool is_there) {
  if (reinterpret_cast<std::uintptr_t>(to_shared) % 16 != 0 ||
      reinterpret_cast<std::uintptr_t>(from) % 16 != 0) {
    emulation::fail("cp.async of 16 bytes that are not at a multiple of 16");
  }
  emulation::start_copy(to_shared, from, is_there ? 16 : 0, is_there ? 0 : 16);
}
inline void start_number(float* to_shared, const float* from, bool is_there) {
  emulation::start_copy(to_shared, from, is_there ? 4 : 0, is_there ? 0 : 4);
}
inline void end_copy_group() { emulation::end_copy_group(); }
template <int groups_left>
void wait_for_copies() {
  emulation::wait_for_copies(groups_left);
}
inline float exp2_of(float x) { return std::exp2(x); }

#else

// c += a b: a {16, 16}, b {16, 8} of 16-bit elements, c {16, 8} in fp32. Lane l has rows l / 4 and l / 4 + 8, columns
// 2 (l % 4) and the next of c.
__device__ __forceinline__ void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                         std::uint32_t b1, bf16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                         std::uint32_t b1, fp16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Four products at once, c += a b: a {8, 4}, b {4, 8} of fp16 elements, c {8, 8} in fp32; of each the lanes 4 i to 4 i + 3,
// and those 16 on, which are called `later`. A lane has row lane % 4, or 4 on if it is later, of a; of b that column, or,
// kByRows, row lane % 4 and the first or the later four columns; of c rows lane % 2 and 2 on, or 4 on, columns (lane & 2)
// and the next: low, and 4 on: high.
template <bool kByRows>
__device__ __forceinline__ void multiply_quads(float (&low)[4], float (&high)[4], std::uint32_t a0,
                                               std::uint32_t a1, std::uint32_t b0, std::uint32_t b1) {
  if constexpr (kByRows) {
    asm volatile(
        "mma.sync.aligned.m8n8k4.row.row.f32.f16.f16.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11}, {%0, %1, %2, %3, %4, %5, %6, %7};"
        : "+f"(low[0]), "+f"(low[1]), "+f"(low[2]), "+f"(low[3]), "+f"(high[0]), "+f"(high[1]), "+f"(high[2]),
          "+f"(high[3])
        : "r"(a0), "r"(a1), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11}, {%0, %1, %2, %3, %4, %5, %6, %7};"
        : "+f"(low[0]), "+f"(low[1]), "+f"(low[2]), "+f"(low[3]), "+f"(high[0]), "+f"(high[1]), "+f"(high[2]),
          "+f"(high[3])
        : "r"(a0), "r"(a1), "r"(b0), "r"(b1));
  }
}
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}
// Four matrices {8, 8} of 16-bit elements; lanes 8 i to 8 i + 7 say where the rows of matrix i are, on multiples of 16
// bytes. Lane l gets row l / 4, columns 2 (l % 4) and the next of each, transposed the other way round.
__device__ __forceinline__ void load_matrices(std::uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row)));
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row)));
}
// 16 bytes into shared memory, past the registers; zeros where they are not there. `from` must be an address that could
// be read all the same. Before sm_80 through the registers, and there at once.
__device__ __forceinline__ void start_copy(void* to_shared, const void* from, bool is_there) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  store_words(to_shared, is_there ? load_words(from) : Words{0, 0, 0, 0});
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to_shared)),
               "l"(__cvta_generic_to_global(from)), "r"(is_there ? 16 : 0));
#endif
}
// The same of one number.
__device__ __forceinline__ void start_number(float* to_shared, const float* from, bool is_there) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  *to_shared = is_there ? *from : 0.0F;
#else
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to_shared)),
               "l"(__cvta_generic_to_global(from)), "r"(is_there ? 4 : 0));
#endif
}
__device__ __forceinline__ void end_copy_group() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;");
#endif
}
// This thread's copies but those of the last `groups_left` groups have come; other threads see them behind a barrier.
template <int groups_left>
__device__ __forceinline__ void wait_for_copies() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(groups_left) : "memory");
#endif
}
// 2^x, 0 below 2^-126; relative error 2^-22 (PTX ISA, "ex2").
__device__ __forceinline__ float exp2_of(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

#endif

}  // namespace zeroplan::executor::cuda
