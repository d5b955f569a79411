#pragma once

#include "executor/device/cuda/kernels/attention.cuh"
#include "executor/device/cuda/kernels/warp_product.cuh"

// Pieces of attention on tensor cores (FlashAttention-2, arXiv 2307.08691): a block of four warps with tiles of a head's
// rows in shared memory, 16-bit elements, products in fp32 registers. Mma is how a warp multiplies (warp_product.cuh).
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
template <class Mma, int kDim, class T>
__device__ __forceinline__ void round_into(T* tile, const float (&c)[kDim / 8][4], const float (&factor)[2]) {
  ZEROPLAN_UNROLL
  for (int j = 0; j < kDim / 8; ++j) {
    ZEROPLAN_UNROLL
    for (int part = 0; part < 2; ++part) {
      T* to = tile + Mma::row(part) * kTileStride<kDim> + Mma::column(j, 0);
      *reinterpret_cast<std::uint32_t*>(to) =
          pair_of(c[j][2 * part] * factor[part], c[j][2 * part + 1] * factor[part], T{});
    }
  }
}

// The left operand's fragments of 16 rows after 16 rows of a tile, loaded when they are asked for.
template <class Mma, int kDim, class T>
class TileFragments {
 public:
  __device__ __forceinline__ TileFragments(const T* tile, int first_row)
      : tile_(tile + first_row * kTileStride<kDim>) {}
  __device__ __forceinline__ void get(int i, int step, std::uint32_t (&to)[Mma::kRegisters]) const {
    Mma::load_left(tile_ + i * kFragment * kTileStride<kDim> + step * kFragment, kTileStride<kDim>, to);
  }

 private:
  const T* tile_;
};
// The same, held in registers.
template <class Mma, int kDim, int kTiles>
class HeldFragments {
 public:
  template <class T>
  __device__ __forceinline__ void load(const TileFragments<Mma, kDim, T>& from) {
    ZEROPLAN_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      ZEROPLAN_UNROLL
      for (int step = 0; step < kDim / kFragment; ++step) from.get(i, step, held_[i][step]);
    }
  }
  __device__ __forceinline__ void get(int i, int step, std::uint32_t (&to)[Mma::kRegisters]) const {
    ZEROPLAN_UNROLL
    for (int part = 0; part < Mma::kRegisters; ++part) to[part] = held_[i][step][part];
  }

 private:
  std::uint32_t held_[kTiles][kDim / kFragment][Mma::kRegisters];
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
template <class Mma, int kDim, int kColumns, int kTiles, class Fragments, class T>
__device__ __forceinline__ void multiply_by_rows(float (&c)[kTiles][kColumns / 8][4], const Fragments& a,
                                                 const T* tile) {
  clear(c);
  ZEROPLAN_UNROLL
  for (int step = 0; step < kDim / kFragment; ++step) {
    std::uint32_t left[kTiles][Mma::kRegisters];
    ZEROPLAN_UNROLL
    for (int i = 0; i < kTiles; ++i) a.get(i, step, left[i]);
    ZEROPLAN_UNROLL
    for (int j = 0; j < kColumns / 16; ++j) {
      std::uint32_t right[Mma::kRegisters];
      Mma::template load_right<Rows::of_transposed_b>(tile + j * 16 * kTileStride<kDim> + step * kFragment,
                                                      kTileStride<kDim>, right);
      ZEROPLAN_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        Mma::template add_product<Rows::of_transposed_b>(c[i][2 * j], c[i][2 * j + 1], left[i], right, T{});
      }
    }
  }
}

// c += round(p) B of kTiles times 16 rows, B kInner rows of a tile: products that stay in registers as left operands.
template <class Mma, int kDim, int kInner, int kTiles, class T>
__device__ __forceinline__ void add_product(float (&c)[kTiles][kDim / 8][4],
                                            const float (&p)[kTiles][kInner / 8][4], const T* tile) {
  ZEROPLAN_UNROLL
  for (int step = 0; step < kInner / kFragment; ++step) {
    std::uint32_t left[kTiles][Mma::kRegisters];
    ZEROPLAN_UNROLL
    for (int i = 0; i < kTiles; ++i) Mma::take_left(p[i][2 * step], p[i][2 * step + 1], left[i], T{});
    ZEROPLAN_UNROLL
    for (int j = 0; j < kDim / 16; ++j) {
      std::uint32_t right[Mma::kRegisters];
      Mma::template load_right<Rows::of_b>(tile + step * kFragment * kTileStride<kDim> + j * 16,
                                           kTileStride<kDim>, right);
      ZEROPLAN_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        Mma::template add_product<Rows::of_b>(c[i][2 * j], c[i][2 * j + 1], left[i], right, T{});
      }
    }
  }
}

// tanh(x), off by 10^-7 at most: what 16-bit scores do not see.
__device__ __forceinline__ float tanh_of(float x) { return 1 - __fdividef(2, exp2_of(x * (2 * kLog2E)) + 1); }

// ---- the host's side ----

// What kernels are built for: CUDA 13's modules begin at sm_80, the one for V100 has sm_70 alone, emulation all.
#if defined(ZEROPLAN_EMULATED)
inline constexpr bool kHasMma16816 = true, kHasMma884 = true;
#elif defined(ZEROPLAN_OLDEST_SM) && ZEROPLAN_OLDEST_SM < 80
inline constexpr bool kHasMma16816 = false, kHasMma884 = true;
#else
inline constexpr bool kHasMma16816 = true, kHasMma884 = false;
#endif

// Calls start.operator()<Mma, T, kDim>() where the head size is one of these kernels'; whether it did and that returned
// true.
template <class Mma, class T, class Start>
bool with_head_size(std::int64_t head_size, const Start& start) {
  switch (head_size) {
    case 64:
      return start.template operator()<Mma, T, 64>();
    case 80:
      return start.template operator()<Mma, T, 80>();
    case 96:
      return start.template operator()<Mma, T, 96>();
    case 128:
      return start.template operator()<Mma, T, 128>();
    case 256:
      return start.template operator()<Mma, T, 256>();
    default:
      return false;
  }
}

// The same where these kernels take the instruction on the launcher's device: its operands are of one 16-bit type whose
// products the device has, and rows begin at multiples of 16 bytes.
template <class Start>
bool with_flash(const Kernel& kernel, const Launcher& launcher, std::initializer_list<std::size_t> operands,
                const Start& start) {
  const program::DataType type = kernel.operands[*operands.begin()].type;
  if (type == program::DataType::fp32) return false;
  for (const std::size_t i : operands) {
    const Tensor& operand = kernel.operands[i];
    if (operand && (operand.type != type || !is_aligned(operand))) return false;
  }
  const std::int64_t head_size = kernel.dims[3];
  const bool is_fp16 = type == program::DataType::fp16;
  if constexpr (kHasMma16816) {
    if (launcher.sm >= 80) {
      return is_fp16 ? with_head_size<Mma16816, fp16>(head_size, start)
                     : with_head_size<Mma16816, bf16>(head_size, start);
    }
  }
  if constexpr (kHasMma884) {
    if (launcher.sm < 80 && is_fp16) return with_head_size<Mma884, fp16>(head_size, start);
  }
  return false;
}

}  // namespace zeroplan::executor::cuda
