#pragma once

#include "executor/device/cuda/kernels/attention.cuh"
#include "executor/device/cuda/tensor_core.cuh"

// Pieces of attention on tensor cores (FlashAttention-2, arXiv 2307.08691): a block of four warps with tiles of a head's
// rows in shared memory, 16-bit elements, products in fp32 registers.
namespace zeroplan::executor::cuda {

inline constexpr int kFlashWarps = 4;
inline constexpr int kFlashThreads = kFlashWarps * kWarpLanes;
inline constexpr int kFragment = 16;  // rows and columns of a left operand

inline constexpr float kLog2E = 1.44269504F;
inline constexpr float kLn2 = 0.693147181F;

// Elements between rows of a tile: 16 bytes more than a row, so that eight rows lie in different banks.
template <int kDim>
inline constexpr int kTileStride = kDim + 8;

// Bytes of a tile.
template <int kDim>
constexpr std::size_t tile_bytes(int rows) {
  return static_cast<std::size_t>(rows) * kTileStride<kDim> * sizeof(std::uint16_t);
}

__device__ __forceinline__ int lane_of_warp() { return static_cast<int>(threadIdx.x % kWarpLanes); }
__device__ __forceinline__ int warp_of_block() { return static_cast<int>(threadIdx.x / kWarpLanes); }

// Starts to copy rows [first, first + kRows) of a head into a tile; those from `end` on become 0.
template <int kDim, int kRows, class T>
__device__ __forceinline__ void start_rows(T* tile, const T* head, Index stride, int first, int end) {
  constexpr int kChunks = kDim / 8;
  ZEROPLAN_UNROLL
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kFlashThreads) {
    const int row = i / kChunks;
    const int column = i % kChunks * 8;
    const bool is_there = first + row < end;
    const T* from = head + (is_there ? (first + row) * stride : 0) + column;
    start_copy(tile + row * kTileStride<kDim> + column, from, is_there);
  }
}

// Writes `kRows` rows of a tile, of which a warp has made its own, to a head, as far as `end`.
template <int kDim, int kRows, class T>
__device__ __forceinline__ void store_rows(T* head, Index stride, const T* tile, int first, int end) {
  constexpr int kChunks = kDim / 8;
  ZEROPLAN_UNROLL
  for (int i = lane_of_warp(); i < kRows * kChunks; i += kWarpLanes) {
    const int row = i / kChunks;
    const int column = i % kChunks * 8;
    if (first + row >= end) continue;
    store_words(head + (first + row) * stride + column, load_words(tile + row * kTileStride<kDim> + column));
  }
}

// Rounds products of one warp, factor[part] c, into its rows of a tile.
template <int kDim, class T>
__device__ __forceinline__ void round_into(T* tile, const float (&c)[kDim / 8][4], const float (&factor)[2]) {
  const int lane = lane_of_warp();
  ZEROPLAN_UNROLL
  for (int j = 0; j < kDim / 8; ++j) {
    ZEROPLAN_UNROLL
    for (int part = 0; part < 2; ++part) {
      T* to = tile + (lane / 4 + part * 8) * kTileStride<kDim> + j * 8 + lane % 4 * 2;
      *reinterpret_cast<std::uint32_t*>(to) =
          pair_of(c[j][2 * part] * factor[part], c[j][2 * part + 1] * factor[part], T{});
    }
  }
}

// The left operand's fragments of 16 rows after 16 rows of a tile, loaded when they are asked for.
template <int kDim, class T>
class TileFragments {
 public:
  __device__ __forceinline__ TileFragments(const T* tile, int first_row)
      : row_(tile + (first_row + lane_of_warp() % 16) * kTileStride<kDim> + lane_of_warp() / 16 * 8) {}
  __device__ __forceinline__ void get(int i, int step, std::uint32_t (&to)[4]) const {
    load_matrices(to, row_ + i * kFragment * kTileStride<kDim> + step * kFragment);
  }

 private:
  const T* row_;
};
// The same, held in registers.
template <int kDim, int kTiles>
class HeldFragments {
 public:
  template <class T>
  __device__ __forceinline__ void load(const TileFragments<kDim, T>& from) {
    ZEROPLAN_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      ZEROPLAN_UNROLL
      for (int step = 0; step < kDim / kFragment; ++step) from.get(i, step, held_[i][step]);
    }
  }
  __device__ __forceinline__ void get(int i, int step, std::uint32_t (&to)[4]) const {
    ZEROPLAN_UNROLL
    for (int part = 0; part < 4; ++part) to[part] = held_[i][step][part];
  }

 private:
  std::uint32_t held_[kTiles][kDim / kFragment][4];
};

template <int kTiles, int kColumns>
__device__ __forceinline__ void clear(float (&c)[kTiles][kColumns][4]) {
  ZEROPLAN_UNROLL
  for (int i = 0; i < kTiles; ++i) {
    ZEROPLAN_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      ZEROPLAN_UNROLL
      for (int e = 0; e < 4; ++e) c[i][j][e] = 0;
    }
  }
}

// c = A B^T of kTiles times 16 rows with kColumns rows of a tile.
template <int kDim, int kColumns, int kTiles, class Fragments, class T>
__device__ __forceinline__ void multiply_by_rows(float (&c)[kTiles][kColumns / 8][4], const Fragments& a,
                                                 const T* tile) {
  clear(c);
  const int lane = lane_of_warp();
  const T* row = tile + (lane / 16 * 8 + lane % 8) * kTileStride<kDim> + lane / 8 % 2 * 8;
  ZEROPLAN_UNROLL
  for (int step = 0; step < kDim / kFragment; ++step) {
    std::uint32_t left[kTiles][4];
    ZEROPLAN_UNROLL
    for (int i = 0; i < kTiles; ++i) a.get(i, step, left[i]);
    ZEROPLAN_UNROLL
    for (int j = 0; j < kColumns / 16; ++j) {
      std::uint32_t right[4];
      load_matrices(right, row + j * 16 * kTileStride<kDim> + step * kFragment);
      ZEROPLAN_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        multiply(c[i][2 * j], left[i], right[0], right[1], T{});
        multiply(c[i][2 * j + 1], left[i], right[2], right[3], T{});
      }
    }
  }
}

// c += round(p) B of kTiles times 16 rows, B kInner rows of a tile: products that stay in registers as left operands.
template <int kDim, int kInner, int kTiles, class T>
__device__ __forceinline__ void add_product(float (&c)[kTiles][kDim / 8][4],
                                            const float (&p)[kTiles][kInner / 8][4], const T* tile) {
  const int lane = lane_of_warp();
  const T* row = tile + lane % 16 * kTileStride<kDim> + lane / 16 * 8;
  ZEROPLAN_UNROLL
  for (int step = 0; step < kInner / kFragment; ++step) {
    std::uint32_t left[kTiles][4];
    ZEROPLAN_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      ZEROPLAN_UNROLL
      for (int part = 0; part < 4; ++part) {
        const float(&from)[4] = p[i][2 * step + part / 2];
        left[i][part] = pair_of(from[part % 2 * 2], from[part % 2 * 2 + 1], T{});
      }
    }
    ZEROPLAN_UNROLL
    for (int j = 0; j < kDim / 16; ++j) {
      std::uint32_t right[4];
      load_matrices_transposed(right, row + step * kFragment * kTileStride<kDim> + j * 16);
      ZEROPLAN_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        multiply(c[i][2 * j], left[i], right[0], right[1], T{});
        multiply(c[i][2 * j + 1], left[i], right[2], right[3], T{});
      }
    }
  }
}

// tanh(x), off by 10^-7 at most: what 16-bit scores do not see.
__device__ __forceinline__ float tanh_of(float x) { return 1 - __fdividef(2, exp2_of(x * (2 * kLog2E)) + 1); }

// The host's side: calls start.operator()<T, kDim>() and returns true where these kernels take the instruction: its
// operands are of one 16-bit type, rows begin at multiples of 16 bytes, and the head size is one of theirs.
template <class Start>
bool with_flash(const Kernel& kernel, const Launcher& launcher, std::initializer_list<std::size_t> operands,
                const Start& start) {
  if (launcher.sm < 80) return false;
  const program::DataType type = kernel.operands[*operands.begin()].type;
  if (type == program::DataType::fp32) return false;
  for (const std::size_t i : operands) {
    const Tensor& operand = kernel.operands[i];
    if (operand && (operand.type != type || !is_aligned(operand))) return false;
  }
  const auto with_type = [&]<class T>() {
    switch (kernel.dims[3]) {
      case 64:
        start.template operator()<T, 64>();
        return true;
      case 80:
        start.template operator()<T, 80>();
        return true;
      case 96:
        start.template operator()<T, 96>();
        return true;
      case 128:
        start.template operator()<T, 128>();
        return true;
      case 256:
        start.template operator()<T, 256>();
        return true;
      default:
        return false;
    }
  };
  return type == program::DataType::bf16 ? with_type.template operator()<bf16>()
                                         : with_type.template operator()<fp16>();
}

}  // namespace zeroplan::executor::cuda
