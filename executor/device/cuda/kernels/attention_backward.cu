#include "executor/device/cuda/kernels.hpp"
#include "executor/device/cuda/kernels/flash.cuh"

// Two kernels, one for the queries' gradients and one for those of keys and values, each of which makes the scores
// again: so every element has one warp that adds to it in one order, and the same layout gives the same bits.
namespace zeroplan::executor::cuda {

namespace {

constexpr int kOwn = kFlashWarps * kFragment;  // own rows of a block
template <int kDim>
inline constexpr int kOthers = kDim <= 64 ? 64 : (kDim <= 128 ? 32 : 16);  // of the other side at a time
// Tiles of the other side that are there: while one is multiplied the next comes, where copies go on beside the warps.
template <class Mma>
inline constexpr int kStages = Mma::kCopiesAre ? 2 : 1;

template <class Mma, int kDim>
constexpr std::size_t backward_bytes() {
  return tile_bytes<kDim>(2 * kOwn + 2 * kStages<Mma> * kOthers<kDim>);
}

// What blocks of every device from sm_80 on can have, and those of V100.
static_assert(backward_bytes<Mma16816, 256>() <= std::size_t{99} * 1024);
static_assert(backward_bytes<Mma884, 256>() <= std::size_t{96} * 1024);

// Which gradients a kernel makes; with large heads registers are too few for both.
enum class Makes : int { both, values, keys };

// Of a query.
struct Numbers {
  float log_sum_exp = 0, row_dot = 0;
};

// Where a lane's elements of a warp's products are: c[0][j][e] is row(e / 2), column(j, e % 2).
template <class Mma>
struct Places {
  int first_row, first_column;
  __device__ int row(int part) const { return first_row + Mma::row(part); }
  __device__ int column(int j, int e) const { return first_column + Mma::column(j, e); }
};

// Scaled products c become probabilities and, where kGradients, the probabilities' gradients d those of the scaled
// products. Rows are queries, or kRowsAreKeys; numbers(j, e) are those of the query of an element.
template <bool kRowsAreKeys, bool kGradients, class Mma, int kColumns, class OfQuery>
__device__ __forceinline__ void take_scores(const AttentionNumbers& n, float slope, const Places<Mma>& at,
                                            bool is_masked, const OfQuery& numbers,
                                            float (&c)[1][kColumns][4], float (&d)[1][kColumns][4]) {
  if constexpr (kGradients) {
    ZEROPLAN_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      ZEROPLAN_UNROLL
      for (int e = 0; e < 4; ++e) d[0][j][e] -= numbers(j, e).row_dot;
    }
  }
  float factor = n.scale * kLog2E;
  if (n.is_shaped()) {
    factor = kLog2E;
    ZEROPLAN_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      ZEROPLAN_UNROLL
      for (int e = 0; e < 4; ++e) {
        float score = c[0][j][e] * n.scale;
        if (n.soft_cap > 0) {
          const float t = tanh_of(score * n.inverse_cap);
          score = n.soft_cap * t;
          if constexpr (kGradients) d[0][j][e] *= 1 - t * t;
        }
        const int distance = at.row(e / 2) - at.column(j, e % 2);
        c[0][j][e] = score - slope * static_cast<float>(kRowsAreKeys ? -distance : distance);
      }
    }
  }
  ZEROPLAN_UNROLL
  for (int j = 0; j < kColumns; ++j) {
    ZEROPLAN_UNROLL
    for (int e = 0; e < 4; ++e)
      c[0][j][e] = exp2_of(fmaf(c[0][j][e], factor, -kLog2E * numbers(j, e).log_sum_exp));
  }
  if (is_masked) {
    ZEROPLAN_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      ZEROPLAN_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int row = at.row(e / 2);
        const int column = at.column(j, e % 2);
        const bool is_seen = kRowsAreKeys ? n.sees(column, row) : n.sees(row, column);
        if (!is_seen) c[0][j][e] = 0;
      }
    }
  }
  if constexpr (kGradients) {
    ZEROPLAN_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      ZEROPLAN_UNROLL
      for (int e = 0; e < 4; ++e) d[0][j][e] *= c[0][j][e];
    }
  }
}

// dQ = scale dS K. Grid: {blocks of queries, heads, sequences}.
template <class Mma, class T, int kDim>
__global__ void __launch_bounds__(kFlashThreads)
    flash_backward_queries(const T* dy, const T* query_key, const T* packed, const float* log_sum_exp,
                           const float* row_dots, T* gradient, AttentionNumbers n) {
  constexpr int kKeys = kOthers<kDim>;
  constexpr int kTile = kKeys * kTileStride<kDim>;
  auto* const queries = reinterpret_cast<T*>(shared_bytes());
  T* const d_outs = queries + kOwn * kTileStride<kDim>;
  T* const stages = d_outs + kOwn * kTileStride<kDim>;  // of {keys, values}
  const auto head = static_cast<int>(blockIdx.y);
  const int kv_head = head / n.group();
  const auto at = static_cast<int>(blockIdx.z);
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kOwn;  // the longest rows first
  const int own = warp_of_block() * kFragment;
  const int end = first + kOwn < n.sequence ? first + kOwn : n.sequence;
  const T* const key_head = query_key + n.key(at, kv_head);
  const T* const value_head = packed + n.value(at, kv_head);
  const float slope = n.is_biased ? n.slopes[head] : 0.0F;
  const int last_row = first + own + kFragment - 1;

  const int begin = n.first_seen(first) / kKeys * kKeys;
  const auto start_tile = [&](int first_key, int stage) {
    T* const tile = stages + stage * 2 * kTile;
    start_rows<kDim, kKeys>(tile, key_head, n.query_key_stride, first_key, n.sequence);
    start_rows<kDim, kKeys>(tile + kTile, value_head, n.packed_stride, first_key, n.sequence);
  };
  start_rows<kDim, kOwn>(queries, query_key + n.query(at, head), n.query_key_stride, first, n.sequence);
  start_rows<kDim, kOwn>(d_outs, dy + n.context(at, head), n.context_stride(), first, n.sequence);
  start_tile(begin, 0);
  end_copy_group();

  Numbers of_part[2];
  ZEROPLAN_UNROLL
  for (int part = 0; part < 2; ++part) {
    const int row = first + own + Mma::row(part);
    if (row >= n.sequence) continue;
    of_part[part] = {log_sum_exp[n.number(at, row, head)], row_dots[n.number(at, row, head)]};
  }
  const auto numbers = [&](int, int e) { return of_part[e / 2]; };
  const TileFragments<Mma, kDim, T> query_fragments(queries, own);
  const TileFragments<Mma, kDim, T> d_out_fragments(d_outs, own);
  float d_queries[1][kDim / 8][4];
  clear(d_queries);
  int stage = 0;
  for (int first_key = begin; first_key < end; first_key += kKeys, stage = (stage + 1) % kStages<Mma>) {
    const bool is_last = first_key + kKeys >= end;
    if (kStages < Mma >> 1 && !is_last) start_tile(first_key + kKeys, 1 - stage);
    end_copy_group();
    wait_for_copies<kStages<Mma> - 1>();
    __syncthreads();
    const T* const keys = stages + stage * 2 * kTile;
    if (first_key <= last_row) {
      float scores[1][kKeys / 8][4];
      float d_scores[1][kKeys / 8][4];
      multiply_by_rows<Mma, kDim, kKeys>(scores, query_fragments, keys);
      multiply_by_rows<Mma, kDim, kKeys>(d_scores, d_out_fragments, keys + kTile);
      const bool is_masked = first_key + kKeys - 1 > first + own || first_key < n.first_seen(last_row);
      take_scores<false, true>(n, slope, Places<Mma>{first + own, first_key}, is_masked, numbers, scores,
                               d_scores);
      add_product<Mma, kDim, kKeys>(d_queries, d_scores, keys);
    }
    __syncthreads();  // the stage is free
    if (kStages<Mma> == 1 && !is_last) start_tile(first_key + kKeys, 0);
  }
  wait_for_copies<0>();
  T* const tile = queries + own * kTileStride<kDim>;
  round_into<Mma, kDim>(tile, d_queries[0], {n.scale, n.scale});
  __syncwarp();
  store_rows<kDim, kFragment>(gradient + n.packed_query(at, head), n.packed_stride, tile, first + own,
                              n.sequence);
}

// dV = P^T dO and dK = scale dS^T Q, summed over the heads of a group. Scores are made transposed, so that they are left
// operands of both. Grid: {blocks of keys, key-value heads, sequences}.
template <class Mma, class T, int kDim, Makes makes>
__global__ void __launch_bounds__(kFlashThreads)
    flash_backward_keys(const T* dy, const T* query_key, const T* packed, const float* log_sum_exp,
                        const float* row_dots, T* gradient, AttentionNumbers n) {
  constexpr int kQueries = kOthers<kDim>;
  constexpr int kTile = kQueries * kTileStride<kDim>;
  constexpr bool kMakesKeys = makes != Makes::values;
  constexpr bool kMakesValues = makes != Makes::keys;
  auto* const keys = reinterpret_cast<T*>(shared_bytes());
  T* const values = keys + kOwn * kTileStride<kDim>;
  T* const stages = values + kOwn * kTileStride<kDim>;  // of {queries, dy}
  const auto kv_head = static_cast<int>(blockIdx.y);
  const auto at = static_cast<int>(blockIdx.z);
  const int first = static_cast<int>(blockIdx.x) * kOwn;
  const int own = warp_of_block() * kFragment;
  const int last = first + kOwn < n.sequence ? first + kOwn - 1 : n.sequence - 1;
  const int tiles = (n.seen_until(last) - first + kQueries - 1) / kQueries;  // of each head

  // A query's numbers stand in the 16 bytes between its row and the next.
  const auto start_tile = [&](int number, int stage) {
    const int head = kv_head * n.group() + number / tiles;
    const int first_query = first + number % tiles * kQueries;
    T* const tile = stages + stage * 2 * kTile;
    start_rows<kDim, kQueries>(tile, query_key + n.query(at, head), n.query_key_stride, first_query,
                               n.sequence);
    start_rows<kDim, kQueries>(tile + kTile, dy + n.context(at, head), n.context_stride(), first_query,
                               n.sequence);
    const auto row = static_cast<int>(threadIdx.x);
    if (row < kQueries) {
      const bool is_there = first_query + row < n.sequence;
      const Index from = n.number(at, is_there ? first_query + row : 0, head);
      auto* const to = reinterpret_cast<float*>(tile + row * kTileStride<kDim> + kDim);
      start_number(to, log_sum_exp + from, is_there);
      start_number(to + 1, row_dots + from, is_there);
    }
  };
  start_rows<kDim, kOwn>(keys, query_key + n.key(at, kv_head), n.query_key_stride, first, n.sequence);
  start_rows<kDim, kOwn>(values, packed + n.value(at, kv_head), n.packed_stride, first, n.sequence);
  start_tile(0, 0);
  end_copy_group();

  const TileFragments<Mma, kDim, T> key_fragments(keys, own);
  const TileFragments<Mma, kDim, T> value_fragments(values, own);
  constexpr int kKeyColumns = kMakesKeys ? kDim / 8 : 1;
  constexpr int kValueColumns = kMakesValues ? kDim / 8 : 1;
  float d_keys[1][kKeyColumns][4];
  float d_values[1][kValueColumns][4];
  clear(d_keys);
  clear(d_values);
  int stage = 0;
  for (int number = 0; number < tiles * n.group(); ++number, stage = (stage + 1) % kStages<Mma>) {
    const bool is_last = number + 1 == tiles * n.group();
    if (kStages < Mma >> 1 && !is_last) start_tile(number + 1, 1 - stage);
    end_copy_group();
    wait_for_copies<kStages<Mma> - 1>();
    __syncthreads();
    const T* const queries = stages + stage * 2 * kTile;
    const T* const d_outs = queries + kTile;
    const int head = kv_head * n.group() + number / tiles;
    const int first_query = first + number % tiles * kQueries;
    if (first_query + kQueries > first + own) {
      float scores[1][kQueries / 8][4];
      float d_scores[1][kQueries / 8][4];
      multiply_by_rows<Mma, kDim, kQueries>(scores, key_fragments, queries);
      if constexpr (kMakesKeys) multiply_by_rows<Mma, kDim, kQueries>(d_scores, value_fragments, d_outs);
      const Places<Mma> places{first + own, first_query};
      const auto numbers = [&](int j, int e) {
        const int row = places.column(j, e % 2) - first_query;
        const auto* from = reinterpret_cast<const float*>(queries + row * kTileStride<kDim> + kDim);
        return Numbers{from[0], from[1]};
      };
      const bool is_masked =
          first_query < first + own + kFragment - 1 || n.first_seen(first_query + kQueries - 1) > first + own;
      take_scores<true, kMakesKeys>(n, n.is_biased ? n.slopes[head] : 0.0F, places, is_masked, numbers,
                                    scores, d_scores);
      if constexpr (kMakesValues) add_product<Mma, kDim, kQueries>(d_values, scores, d_outs);
      if constexpr (kMakesKeys) add_product<Mma, kDim, kQueries>(d_keys, d_scores, queries);
    }
    __syncthreads();  // the stage is free
    if (kStages<Mma> == 1 && !is_last) start_tile(number + 1, 0);
  }
  wait_for_copies<0>();
  if constexpr (kMakesKeys) {
    T* const tile = keys + own * kTileStride<kDim>;
    round_into<Mma, kDim>(tile, d_keys[0], {n.scale, n.scale});
    __syncwarp();
    store_rows<kDim, kFragment>(gradient + n.packed_key(at, kv_head), n.packed_stride, tile, first + own,
                                n.sequence);
  }
  if constexpr (kMakesValues) {
    T* const tile = values + own * kTileStride<kDim>;
    round_into<Mma, kDim>(tile, d_values[0], {1.0F, 1.0F});
    __syncwarp();
    store_rows<kDim, kFragment>(gradient + n.value(at, kv_head), n.packed_stride, tile, first + own,
                                n.sequence);
  }
}

}  // namespace

void attention_backward(const Kernel& kernel, const Launcher& launcher) {
  const AttentionNumbers n = attention_numbers(kernel, 2);
  const bool is_done = with_flash(kernel, launcher, {0, 1, 2, 5}, [&]<class Mma, class T, int kDim>() {
    if (backward_bytes<Mma, kDim>() > most_shared_bytes(launcher.sm)) return false;
    const auto start = [&]<auto function>(int heads) {
      const LaunchShape shape{dim3(static_cast<unsigned>(div_ceil(n.sequence, kOwn)),
                                   static_cast<unsigned>(heads), static_cast<unsigned>(n.sequences)),
                              dim3(kFlashThreads), backward_bytes<Mma, kDim>()};
      launch<function>(
          launcher.stream, shape, OperandRanges(kernel), reinterpret_cast<const T*>(kernel.operands[0].data),
          reinterpret_cast<const T*>(query_key_of(kernel, 1, 2).data),
          reinterpret_cast<const T*>(kernel.operands[1].data), kernel.operands[3].as<float>().data(),
          kernel.operands[4].as<float>().data(), reinterpret_cast<T*>(kernel.operands[5].data), n);
    };
    start.template operator()<flash_backward_queries<Mma, T, kDim>>(n.heads);
    if constexpr (kDim <= 128) {
      start.template operator()<flash_backward_keys<Mma, T, kDim, Makes::both>>(n.kv_heads);
    } else {
      start.template operator()<flash_backward_keys<Mma, T, kDim, Makes::values>>(n.kv_heads);
      start.template operator()<flash_backward_keys<Mma, T, kDim, Makes::keys>>(n.kv_heads);
    }
    return true;
  });
  if (!is_done) plain_attention_backward(kernel, launcher);
}

}  // namespace zeroplan::executor::cuda
