#pragma once

#include "executor/device/cuda/tensor_core.cuh"

// How a warp multiplies 16-bit elements {16, 16} by {16, 16} on each kind of tensor core. Operands come from tiles in
// shared memory, whose rows are `stride` elements apart and begin at multiples of 16 bytes, or from earlier products. A
// result is fp32 in every lane's c[2 j] and c[2 j + 1], four elements each: element 2 part + e is at row(part),
// column(2 j, e) and column(2 j + 1, e). So what is done to a row or an element is the same code for all kinds.
namespace zeroplan::executor::cuda {

__device__ __forceinline__ int lane_of_warp() { return static_cast<int>(threadIdx.x % kWarpLanes); }
__device__ __forceinline__ int warp_of_block() { return static_cast<int>(threadIdx.x / kWarpLanes); }

// Which side of a product a tile's rows are: those of b in a b, or those of the transposed b in a b^T.
enum class Rows : int { of_b, of_transposed_b };

// mma.m16n8k16 and ldmatrix: sm_80 and up.
struct Mma16816 {
  static constexpr int kRegisters = 4;      // of an operand
  static constexpr bool kCopiesAre = true;  // beside the warps: cp.async

  // Lanes with elements of the same rows differ in these two bits.
  static constexpr int kSameRow0 = 1, kSameRow1 = 2;
  __device__ static int row(int part) { return lane_of_warp() / 4 + part * 8; }
  __device__ static int column(int j, int e) { return j * 8 + lane_of_warp() % 4 * 2 + e; }

  template <class T>
  __device__ static void load_left(const T* tile, int stride, std::uint32_t (&to)[kRegisters]) {
    const int lane = lane_of_warp();
    load_matrices(to, tile + lane % 16 * stride + lane / 16 * 8);
  }
  // Products, rounded, as left operand.
  template <class T>
  __device__ static void take_left(const float (&low)[4], const float (&high)[4],
                                   std::uint32_t (&to)[kRegisters], T type) {
    to[0] = pair_of(low[0], low[1], type);
    to[1] = pair_of(low[2], low[3], type);
    to[2] = pair_of(high[0], high[1], type);
    to[3] = pair_of(high[2], high[3], type);
  }
  template <Rows rows, class T>
  __device__ static void load_right(const T* tile, int stride, std::uint32_t (&to)[kRegisters]) {
    const int lane = lane_of_warp();
    if constexpr (rows == Rows::of_b) {
      load_matrices_transposed(to, tile + lane % 16 * stride + lane / 16 * 8);
    } else {
      load_matrices(to, tile + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8);
    }
  }
  template <Rows rows, class T>
  __device__ static void add_product(float (&low)[4], float (&high)[4],
                                     const std::uint32_t (&left)[kRegisters],
                                     const std::uint32_t (&right)[kRegisters], T type) {
    multiply(low, left, right[0], right[1], type);
    multiply(high, left, right[2], right[3], type);
  }
};

// mma.m8n8k4 of fp16: sm_70. Each quarter of a warp makes a quarter of the result, in four steps of four elements each:
// lanes with bit 2 have its lower rows, lanes with bit 3 its right columns. It is this way that loads are of whole rows.
struct Mma884 {
  static constexpr int kRegisters = 8;
  static constexpr bool kCopiesAre = false;

  static constexpr int kSameRow0 = 2, kSameRow1 = 8;
  __device__ static int row(int part) { return first_row() + lane_of_warp() % 2 + part * 2; }
  __device__ static int column(int j, int e) {
    const int lane = lane_of_warp();
    return j / 2 * 16 + (lane & 8) + j % 2 * 4 + (lane & 2) + e;
  }

  __device__ static void load_left(const fp16* tile, int stride, std::uint32_t (&to)[kRegisters]) {
    load_row(tile + (first_row() + lane_of_warp() % 4) * stride, to);
  }
  // A lane has two elements of two rows in each step of its quarter, and needs all elements of one: it exchanges half of
  // what it has with the lane that has the others, and then all with the quarter beside.
  __device__ static void take_left(const float (&low)[4], const float (&high)[4],
                                   std::uint32_t (&to)[kRegisters], fp16 type) {
    const bool has_second = (lane_of_warp() & 2) != 0;
    const bool is_right = (lane_of_warp() & 8) != 0;
    ZEROPLAN_UNROLL
    for (int step = 0; step < 2; ++step) {
      const float(&from)[4] = step == 0 ? low : high;
      const std::uint32_t first = pair_of(from[0], from[1], type);
      const std::uint32_t second = pair_of(from[2], from[3], type);
      const std::uint32_t kept = has_second ? second : first;
      const std::uint32_t got = __shfl_xor_sync(kAllLanes, has_second ? first : second, 2);
      const std::uint32_t own[2] = {has_second ? got : kept, has_second ? kept : got};
      ZEROPLAN_UNROLL
      for (int pair = 0; pair < 2; ++pair) {
        const std::uint32_t beside = __shfl_xor_sync(kAllLanes, own[pair], 8);
        to[2 * step + pair] = is_right ? beside : own[pair];
        to[4 + 2 * step + pair] = is_right ? own[pair] : beside;
      }
    }
  }
  template <Rows rows>
  __device__ static void load_right(const fp16* tile, int stride, std::uint32_t (&to)[kRegisters]) {
    const int lane = lane_of_warp();
    const int later = (lane & 8) + lane / 16 * 4;
    if constexpr (rows == Rows::of_b) {
      ZEROPLAN_UNROLL
      for (int step = 0; step < 4; ++step) {
        const auto* from = reinterpret_cast<const Pairs*>(tile + (4 * step + lane % 4) * stride + later);
        to[2 * step] = from->x;
        to[2 * step + 1] = from->y;
      }
    } else {
      load_row(tile + (later + lane % 4) * stride, to);
    }
  }
  template <Rows rows>
  __device__ static void add_product(float (&low)[4], float (&high)[4],
                                     const std::uint32_t (&left)[kRegisters],
                                     const std::uint32_t (&right)[kRegisters], fp16) {
    ZEROPLAN_UNROLL
    for (int i = 0; i < kRegisters; i += 2)
      multiply_quads<rows == Rows::of_b>(low, high, left[i], left[i + 1], right[i], right[i + 1]);
  }

 private:
  struct alignas(8) Pairs {
    std::uint32_t x, y;
  };
  __device__ static int first_row() { return (lane_of_warp() & 4) * 2 + lane_of_warp() / 16 * 4; }
  __device__ static void load_row(const fp16* row, std::uint32_t (&to)[kRegisters]) {
    ZEROPLAN_UNROLL
    for (int half = 0; half < 2; ++half) {
      const Words words = load_words(row + 8 * half);
      to[4 * half] = words.x;
      to[4 * half + 1] = words.y;
      to[4 * half + 2] = words.z;
      to[4 * half + 3] = words.w;
    }
  }
};

}  // namespace zeroplan::executor::cuda
