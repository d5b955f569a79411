#include <algorithm>

#include "executor/device/cuda/checks.hpp"
#include "executor/device/cuda/kernels.hpp"
#include "executor/device/cuda/kernels/reals.cuh"

namespace zeroplan::executor::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kSortThreads = 256;
constexpr std::int32_t kNoRow = 0x7fffffff;

struct Embedding {
  Index tokens = 0, width = 0, rows = 0, first_row = 0;
  Index sequence = 0;  // 0 without positions
  Tiles tiles{};

  // The token's row of this rank's part of the table, or kNoRow.
  __device__ std::int32_t row(const std::int32_t* indices, Index token) const {
    const Index local = indices[token] - first_row;
    return local >= 0 && local < rows ? static_cast<std::int32_t>(local) : kNoRow;
  }
};

Embedding embedding_of(const Kernel& kernel, bool positions) {
  Embedding embedding{kernel.dims[0], kernel.dims[1], kernel.dims[2], kernel.dims[3]};
  embedding.tiles = tiles_of(embedding.width, kThreads);
  if (positions) {
    embedding.sequence = kernel.extra;
    if (embedding.sequence == 0)
      refuse(kernel, "extra must be the sequence's length: positions depend on it");
  }
  return embedding;
}

template <bool kVectors>
__global__ void __launch_bounds__(kThreads)
    gather(Embedding embedding, float factor, const std::int32_t* indices, Reals table, Reals positions,
           Reals out) {
  const Index token = embedding.tiles.row();
  const auto at = embedding.tiles.template at<kVectors>();
  const std::int32_t row = embedding.row(indices, token);
  const bool adds_positions = embedding.sequence > 0 && embedding.first_row == 0;
  float sum[kEight] = {};
  if (row != kNoRow && table.data != nullptr) {
    read(table, row * embedding.width, at, sum);
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) sum[i] *= factor;
  } else if (table.data == nullptr) {
    read(out, token * embedding.width, at, sum);
  }
  if (adds_positions) {
    float position[kEight];
    read(positions, token % embedding.sequence * embedding.width, at, position);
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) sum[i] += position[i];
  }
  write(out, token * embedding.width, at, sum);
}

// sorted[k] is the token that is k-th by row, and among those of one row by place: each token counts those before it.
// A block looks at tokens a tile at a time.
__global__ void __launch_bounds__(kSortThreads)
    sort_tokens(Embedding embedding, const std::int32_t* indices, std::int32_t* sorted) {
  auto* tile = reinterpret_cast<std::int32_t*>(shared_bytes());
  const Index first_own = static_cast<Index>(blockIdx.x) * kSortThreads;
  const Index own = first_own + threadIdx.x;
  const std::int32_t row = own < embedding.tokens ? embedding.row(indices, own) : kNoRow;
  Index before = 0;
  for (Index first = 0; first < embedding.tokens; first += kSortThreads) {
    const Index other = first + threadIdx.x;
    __syncthreads();
    if (other < embedding.tokens) tile[threadIdx.x] = embedding.row(indices, other);
    __syncthreads();
    const auto count = static_cast<int>(smaller(kSortThreads, embedding.tokens - first));
    // Tokens before the own one count where their row is not larger, those behind it where it is smaller.
    const auto earlier = static_cast<int>(own <= first ? 0 : smaller(count, own - first));
    int found = 0;
    for (int i = 0; i < count; ++i) found += tile[i] < row || (tile[i] == row && i < earlier) ? 1 : 0;
    before += found;
  }
  if (own < embedding.tokens) sorted[before] = static_cast<std::int32_t>(own);
}

// Adds to a tile of a row the sum of `count` rows of dx, token(0), token(1) ... in that order, with one rounding.
template <bool kVectors, class Token>
__device__ __forceinline__ void add_rows(const Reals& dx, Index count, const Token& token, Index width,
                                         const Eight<kVectors>& at, float factor, const Reals& to,
                                         Index row) {
  float sum[kEight] = {};
  ZEROPLAN_UNROLL_4
  for (Index i = 0; i < count; ++i) {
    float values[kEight];
    read(dx, token(i) * width, at, values);
    ZEROPLAN_UNROLL
    for (int j = 0; j < kEight; ++j) sum[j] += values[j];
  }
  float before[kEight];
  read(to, row * width, at, before);
  ZEROPLAN_UNROLL
  for (int j = 0; j < kEight; ++j) before[j] += __fmul_rn(sum[j], factor);
  write(to, row * width, at, before);
}

// A block for each token in the order of rows; the first token's of a row adds all of them.
template <bool kVectors>
__global__ void __launch_bounds__(kThreads)
    add_to_table(Embedding embedding, float factor, Reals dx, const std::int32_t* indices,
                 const std::int32_t* sorted, Reals table) {
  const Index place = embedding.tiles.row();
  const std::int32_t row = embedding.row(indices, sorted[place]);
  if (row == kNoRow || (place > 0 && embedding.row(indices, sorted[place - 1]) == row)) return;
  Index end = place + 1;
  while (end < embedding.tokens && embedding.row(indices, sorted[end]) == row) ++end;
  const auto at = embedding.tiles.template at<kVectors>();
  add_rows(
      dx, end - place, [&](Index i) { return Index{sorted[place + i]}; }, embedding.width, at, factor, table,
      row);
}

template <bool kVectors>
__global__ void __launch_bounds__(kThreads) add_to_positions(Embedding embedding, Reals dx, Reals positions) {
  const Index position = embedding.tiles.row();
  const auto at = embedding.tiles.template at<kVectors>();
  const Index count = (embedding.tokens - position + embedding.sequence - 1) / embedding.sequence;
  add_rows(
      dx, count, [&](Index i) { return position + i * embedding.sequence; }, embedding.width, at, 1.0F,
      positions, position);
}

bool takes_vectors(const Embedding& embedding, const Tensor& a, const Tensor& b) {
  return embedding.width % kEight == 0 && are_aligned(a, b);
}

}  // namespace

void embedding_forward(const Kernel& kernel, const Launcher& launcher) {
  const Tensor& table = kernel.operands[1];
  const Tensor& positions = kernel.operands[2];
  const Tensor& out = kernel.operands[3];
  const Embedding embedding = embedding_of(kernel, static_cast<bool>(positions));
  const bool vectors = takes_vectors(embedding, table, out) && is_aligned(positions);
  with_vectors(vectors, [&](auto chosen) {
    launch<gather<chosen()>>(launcher.stream, shape_of(embedding.tiles, embedding.tokens),
                             OperandRanges(kernel), embedding,
                             static_cast<float>(settings_of(kernel).model.embedding_scale),
                             reinterpret_cast<const std::int32_t*>(kernel.operands[0].data), reals(table),
                             reals(positions), reals(out));
  });
}

void embedding_backward(const Kernel& kernel, const Launcher& launcher) {
  const Tensor& dx = kernel.operands[0];
  const Tensor& table = kernel.operands[2];
  const Tensor& positions = kernel.operands[3];
  const Embedding embedding = embedding_of(kernel, static_cast<bool>(positions));
  const auto* indices = reinterpret_cast<const std::int32_t*>(kernel.operands[1].data);
  if (table) {
    require_workspace(kernel, launcher, embedding.tokens * static_cast<Bytes>(sizeof(std::int32_t)));
    auto* sorted = reinterpret_cast<std::int32_t*>(launcher.workspace);
    const LaunchShape sort{dim3(static_cast<unsigned>(div_ceil(embedding.tokens, kSortThreads))),
                           dim3(kSortThreads), sizeof(std::int32_t) * kSortThreads};
    launch<sort_tokens>(launcher.stream, sort, OperandRanges(kernel), embedding, indices, sorted);
    with_vectors(takes_vectors(embedding, dx, table), [&](auto vectors) {
      launch<add_to_table<vectors()>>(launcher.stream, shape_of(embedding.tiles, embedding.tokens),
                                      OperandRanges(kernel), embedding,
                                      static_cast<float>(settings_of(kernel).model.embedding_scale),
                                      reals(dx), indices, sorted, reals(table));
    });
  }
  if (positions) {
    with_vectors(takes_vectors(embedding, dx, positions), [&](auto vectors) {
      launch<add_to_positions<vectors()>>(
          launcher.stream, shape_of(embedding.tiles, std::min(embedding.sequence, embedding.tokens)),
          OperandRanges(kernel), embedding, reals(dx), reals(positions));
    });
  }
}

}  // namespace zeroplan::executor::cuda
