#include "executor/device/cuda/kernels.hpp"
#include "executor/device/cuda/kernels/flash.cuh"

namespace zeroplan::executor::cuda {

namespace {

// Two fragments of rows a warp halve what is read of keys and values; from 256 elements on, registers are too few.
template <int kDim>
inline constexpr int kRowTiles = kDim <= 128 ? 2 : 1;
template <int kDim>
inline constexpr int kRows = kFlashWarps* kRowTiles<kDim>* kFragment;  // queries of a block
template <int kDim>
inline constexpr int kKeys = kDim <= 64 ? 64 : 32;  // of a tile
template <class Mma, int kDim>
inline constexpr bool kHoldsQueries = kDim <= 64 && Mma::kRegisters == 4;

template <int kDim>
constexpr std::size_t forward_bytes() {
  return tile_bytes<kDim>(kRows<kDim> + 2 * kKeys<kDim>);
}

// Where a lane's elements of a warp's scores are: c[i][j][e] is row(i, e / 2), column(j, e % 2).
template <class Mma>
struct Places {
  int first_row, first_column;
  __device__ int row(int tile, int part) const { return first_row + tile * kFragment + Mma::row(part); }
  __device__ int column(int j, int e) const { return first_column + Mma::column(j, e); }
};

// A row of scores as it goes: exp2(factor (score - maximum)) are its terms. The sum is of a lane's own columns until the
// end.
struct Running {
  float maximum = -kInfinity;
  float sum = 0;
};

// Scaled products become scores in the model's units.
template <class Mma, int kTiles, int kColumns>
__device__ __forceinline__ void shape_scores(const AttentionNumbers& n, float slope, const Places<Mma>& at,
                                             float (&c)[kTiles][kColumns][4]) {
  ZEROPLAN_UNROLL
  for (int i = 0; i < kTiles; ++i) {
    ZEROPLAN_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      ZEROPLAN_UNROLL
      for (int e = 0; e < 4; ++e) {
        float score = c[i][j][e] * n.scale;
        if (n.soft_cap > 0) score = n.soft_cap * tanh_of(score * n.inverse_cap);
        c[i][j][e] = score - slope * static_cast<float>(at.row(i, e / 2) - at.column(j, e % 2));
      }
    }
  }
}

template <class Mma, int kTiles, int kColumns>
__device__ __forceinline__ void mask_scores(const AttentionNumbers& n, const Places<Mma>& at,
                                            float (&c)[kTiles][kColumns][4]) {
  ZEROPLAN_UNROLL
  for (int i = 0; i < kTiles; ++i) {
    ZEROPLAN_UNROLL
    for (int part = 0; part < 2; ++part) {
      const int row = at.row(i, part);
      const int first_seen = n.first_seen(row);
      ZEROPLAN_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        ZEROPLAN_UNROLL
        for (int e = 0; e < 2; ++e) {
          const int key = at.column(j, e);
          if (key > row || key < first_seen) c[i][j][2 * part + e] = -kInfinity;
        }
      }
    }
  }
}

// Scores become their terms, and `out` what it is with the new maxima.
template <class Mma, int kTiles, int kColumns, int kOut>
__device__ __forceinline__ void take_scores(float factor, float (&c)[kTiles][kColumns][4],
                                            Running (&running)[kTiles][2], float (&out)[kTiles][kOut][4]) {
  ZEROPLAN_UNROLL
  for (int i = 0; i < kTiles; ++i) {
    ZEROPLAN_UNROLL
    for (int part = 0; part < 2; ++part) {
      Running& row = running[i][part];
      float maximum = row.maximum;
      ZEROPLAN_UNROLL
      for (int j = 0; j < kColumns; ++j)
        maximum = fmaxf(maximum, fmaxf(c[i][j][2 * part], c[i][j][2 * part + 1]));
      maximum = fmaxf(maximum, __shfl_xor_sync(kAllLanes, maximum, Mma::kSameRow0));
      maximum = fmaxf(maximum, __shfl_xor_sync(kAllLanes, maximum, Mma::kSameRow1));
      const float scaled = maximum == -kInfinity ? 0.0F : maximum * factor;  // nothing was seen yet
      const float kept = exp2_of(fmaf(row.maximum, factor, -scaled));
      row.maximum = maximum;
      row.sum *= kept;
      ZEROPLAN_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        ZEROPLAN_UNROLL
        for (int e = 0; e < 2; ++e) {
          const float term = exp2_of(fmaf(c[i][j][2 * part + e], factor, -scaled));
          c[i][j][2 * part + e] = term;
          row.sum += term;
        }
      }
      ZEROPLAN_UNROLL
      for (int j = 0; j < kOut; ++j) {
        out[i][j][2 * part] *= kept;
        out[i][j][2 * part + 1] *= kept;
      }
    }
  }
}

// Grid: {blocks of queries, heads, sequences}. While a tile's scores are made its values come, and while those are
// multiplied the next keys do.
template <class Mma, class T, int kDim>
__global__ void __launch_bounds__(kFlashThreads)
    flash_forward(const T* query_key, const T* packed, T* y, float* log_sum_exp, AttentionNumbers n) {
  constexpr int kTiles = kRowTiles<kDim>;
  constexpr int kColumns = kKeys<kDim>;
  auto* const queries = reinterpret_cast<T*>(shared_bytes());
  T* const keys = queries + kRows<kDim> * kTileStride<kDim>;
  T* const values = keys + kColumns * kTileStride<kDim>;
  const auto head = static_cast<int>(blockIdx.y);
  const int kv_head = head / n.group();
  const auto at = static_cast<int>(blockIdx.z);
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows<kDim>;  // the longest rows first
  const int own = warp_of_block() * kTiles * kFragment;                          // rows of this warp
  const int end = first + kRows<kDim> < n.sequence ? first + kRows<kDim> : n.sequence;
  const T* const key_head = query_key + n.key(at, kv_head);
  const T* const value_head = packed + n.value(at, kv_head);
  const float factor = (n.is_shaped() ? 1.0F : n.scale) * kLog2E;
  const float slope = n.is_biased ? n.slopes[head] : 0.0F;

  int first_key = n.first_seen(first) / kColumns * kColumns;
  start_rows<kDim, kRows<kDim>>(queries, query_key + n.query(at, head), n.query_key_stride, first,
                                n.sequence);
  start_rows<kDim, kColumns>(keys, key_head, n.query_key_stride, first_key, n.sequence);
  end_copy_group();

  float out[kTiles][kDim / 8][4];
  clear(out);
  Running running[kTiles][2];
  const TileFragments<Mma, kDim, T> fragments(queries, own);
  HeldFragments<Mma, kDim, kTiles> held;
  bool is_first = true;
  for (; first_key < end; first_key += kColumns) {
    wait_for_copies<0>();
    __syncthreads();  // keys are there, values are free
    start_rows<kDim, kColumns>(values, value_head, n.packed_stride, first_key, n.sequence);
    end_copy_group();
    float scores[kTiles][kColumns / 8][4];
    if constexpr (kHoldsQueries<Mma, kDim>) {
      if (is_first) {
        held.load(fragments);
        is_first = false;
      }
      multiply_by_rows<Mma, kDim, kColumns>(scores, held, keys);
    } else {
      multiply_by_rows<Mma, kDim, kColumns>(scores, fragments, keys);
    }
    const Places<Mma> places{first + own, first_key};
    if (n.is_shaped()) shape_scores(n, slope, places, scores);
    const int last_row = first + own + kTiles * kFragment - 1;
    if (first_key + kColumns - 1 > first + own || first_key < n.first_seen(last_row))
      mask_scores(n, places, scores);
    wait_for_copies<0>();
    __syncthreads();  // values are there, keys are free
    if (first_key + kColumns < end) {
      start_rows<kDim, kColumns>(keys, key_head, n.query_key_stride, first_key + kColumns, n.sequence);
    }
    end_copy_group();
    take_scores<Mma>(factor, scores, running, out);
    add_product<Mma, kDim, kColumns>(out, scores, values);
  }

  const int lane = lane_of_warp();
  __syncwarp();  // the warp has read its queries: its results take their place
  ZEROPLAN_UNROLL
  for (int i = 0; i < kTiles; ++i) {
    float inverse[2];
    ZEROPLAN_UNROLL
    for (int part = 0; part < 2; ++part) {
      float sum = running[i][part].sum;
      sum += __shfl_xor_sync(kAllLanes, sum, Mma::kSameRow0);
      sum += __shfl_xor_sync(kAllLanes, sum, Mma::kSameRow1);
      inverse[part] = 1.0F / sum;
      const int row = first + own + i * kFragment + Mma::row(part);
      if ((lane & (Mma::kSameRow0 | Mma::kSameRow1)) == 0 && row < n.sequence) {
        log_sum_exp[n.number(at, row, head)] = (running[i][part].maximum * factor + log2f(sum)) * kLn2;
      }
    }
    T* const tile = queries + (own + i * kFragment) * kTileStride<kDim>;
    round_into<Mma, kDim>(tile, out[i], inverse);
    __syncwarp();
    store_rows<kDim, kFragment>(y + n.context(at, head), n.context_stride(), tile,
                                first + own + i * kFragment, n.sequence);
  }
  wait_for_copies<0>();
}

}  // namespace

void attention_forward(const Kernel& kernel, const Launcher& launcher) {
  const AttentionNumbers n = attention_numbers(kernel, 1);
  const bool is_done = with_flash(kernel, launcher, {0, 1, 2}, [&]<class Mma, class T, int kDim>() {
    if (forward_bytes<kDim>() > most_shared_bytes(launcher.sm)) return false;
    const LaunchShape shape{dim3(static_cast<unsigned>(div_ceil(n.sequence, kRows<kDim>)),
                                 static_cast<unsigned>(n.heads), static_cast<unsigned>(n.sequences)),
                            dim3(kFlashThreads), forward_bytes<kDim>()};
    launch<flash_forward<Mma, T, kDim>>(launcher.stream, shape, OperandRanges(kernel),
                                        reinterpret_cast<const T*>(query_key_of(kernel, 0, 1).data),
                                        reinterpret_cast<const T*>(kernel.operands[0].data),
                                        reinterpret_cast<T*>(kernel.operands[2].data),
                                        kernel.operands[3].as<float>().data(), n);
    return true;
  });
  if (!is_done) plain_attention_forward(kernel, launcher);
}

}  // namespace zeroplan::executor::cuda
