#include <cmath>

#include "executor/device/cuda/checks.hpp"
#include "executor/device/cuda/kernels.hpp"
#include "executor/device/cuda/kernels/attention.cuh"

// Attention whose scores, {sequences, heads, sequence, sequence}, are kept (Megatron-LM, arXiv 1909.08053): its products,
// in fp32 without tensor cores, each with one thread for an element and one order of the sum.
namespace zeroplan::executor::cuda {

namespace {

// The heads of all sequences in a tensor, as matrices of rows and columns.
struct Heads {
  Reals data;
  Index first = 0, of_sequence = 0, of_head = 0, of_row = 0, of_column = 1;

  template <class Function>
  Heads translated(const Function& function) const {
    return {data.translated(function), first, of_sequence, of_head, of_row, of_column};
  }
  __device__ Index begin(int sequence, int head) const {
    return first + sequence * of_sequence + head * of_head;
  }
  __host__ __device__ Heads transposed() const {
    return {data, first, of_sequence, of_head, of_column, of_row};
  }
};

// What becomes of a product.
enum class Finish : int {
  stored,    // factor times it
  scores,    // it is scaled, capped, biased; -infinity where nothing is seen
  masked,    // 0 where nothing is seen
  uncapped,  // what is there is multiplied with the slope of the cap
};
// The inner elements that are not 0: all, up to the row, or from the row on.
enum class Inner : int { all, until_row, from_row };

struct Product {
  int rows = 0, columns = 0, inner = 0;
  int heads = 0;        // of the results
  int inner_heads = 1;  // so many are summed for one result
  int right_group = 1;  // so many heads of the left side share one of the right side's
  Inner seen = Inner::all;
  float factor = 1;
};

constexpr int kSide = 64;   // of a block's square of results
constexpr int kDepth = 16;  // inner elements at a time
constexpr int kEach = 4;    // results of a thread in each direction
constexpr int kThreads = kSide / kEach * (kSide / kEach);
constexpr int kStride = kSide + 4;

// Rows [row, row + 64) and columns [column, column + 16) of a matrix into to[column][row]; what is outside is 0.
__device__ __forceinline__ void load_panel(const Heads& from, Index begin, int row, int rows, int column,
                                           int columns, float* to) {
  const bool by_columns = from.of_column == 1;  // neighbouring threads read neighbouring elements
  for (int i = static_cast<int>(threadIdx.x); i < kSide * kDepth; i += kThreads) {
    const int at_row = by_columns ? i / kDepth : i % kSide;
    const int at_column = by_columns ? i % kDepth : i / kSide;
    const bool is_there = row + at_row < rows && column + at_column < columns;
    const Index place = begin + (row + at_row) * from.of_row + (column + at_column) * from.of_column;
    to[at_column * kStride + at_row] = is_there ? load_real(from.data, place) : 0.0F;
  }
}

// Results = finish(left right) with left {rows, inner}, right {inner, columns}. Grid: {squares, heads, sequences}.
template <Finish finish>
__global__ void __launch_bounds__(kThreads, 2)
    head_product(Heads left, Heads right, Heads results, Product product, AttentionNumbers n) {
  auto* const left_panel = reinterpret_cast<float*>(shared_bytes());
  float* const right_panel = left_panel + kDepth * kStride;
  const int squares = (product.columns + kSide - 1) / kSide;  // of a row of them
  const int first_row = static_cast<int>(blockIdx.x) / squares * kSide;
  const int first_column = static_cast<int>(blockIdx.x) % squares * kSide;
  const auto head = static_cast<int>(blockIdx.y);
  const auto sequence = static_cast<int>(blockIdx.z);
  const int own_row = static_cast<int>(threadIdx.x) / (kSide / kEach) * kEach;
  const int own_column = static_cast<int>(threadIdx.x) % (kSide / kEach) * kEach;
  int begin = 0;
  int end = product.inner;
  if (product.seen == Inner::until_row && first_row + kSide < end) end = first_row + kSide;
  if (product.seen == Inner::from_row) begin = first_row / kDepth * kDepth;
  // A square beyond the diagonal has only what is not seen.
  if (finish != Finish::stored && first_column > first_row + kSide - 1) end = 0;

  float sums[kEach][kEach] = {};
  for (int inner_head = 0; inner_head < product.inner_heads; ++inner_head) {
    const int of_left = head * product.inner_heads + inner_head;
    const Index left_begin = left.begin(sequence, of_left);
    const Index right_begin = right.begin(sequence, of_left / product.right_group);
    for (int depth = begin; depth < end; depth += kDepth) {
      load_panel(left, left_begin, first_row, product.rows, depth, product.inner, left_panel);
      load_panel(right.transposed(), right_begin, first_column, product.columns, depth, product.inner,
                 right_panel);
      __syncthreads();
      ZEROPLAN_UNROLL
      for (int k = 0; k < kDepth; ++k) {
        ZEROPLAN_UNROLL
        for (int i = 0; i < kEach; ++i) {
          ZEROPLAN_UNROLL
          for (int j = 0; j < kEach; ++j) {
            sums[i][j] = fmaf(left_panel[k * kStride + own_row + i],
                              right_panel[k * kStride + own_column + j], sums[i][j]);
          }
        }
      }
      __syncthreads();
    }
  }

  const Index to = results.begin(sequence, head);
  ZEROPLAN_UNROLL
  for (int i = 0; i < kEach; ++i) {
    const int row = first_row + own_row + i;
    ZEROPLAN_UNROLL
    for (int j = 0; j < kEach; ++j) {
      const int column = first_column + own_column + j;
      if (row >= product.rows || column >= product.columns) continue;
      const Index place = to + row * results.of_row + column * results.of_column;
      float value = sums[i][j] * product.factor;
      if constexpr (finish == Finish::scores) {
        if (n.soft_cap > 0) value = n.soft_cap * tanhf(value * n.inverse_cap);
        if (n.is_biased) value -= n.slopes[head] * static_cast<float>(row - column);
        if (!n.sees(row, column)) value = -kInfinity;
      }
      if constexpr (finish == Finish::masked) {
        if (!n.sees(row, column)) value = 0;
      }
      if constexpr (finish == Finish::uncapped) {
        const float t = tanhf(value * n.inverse_cap);
        value = n.sees(row, column) ? load_real(results.data, place) * (1 - t * t) : 0.0F;
      }
      store_real(results.data, place, value);
    }
  }
}

// A block for each row. Scores and probabilities may be the same memory.
template <bool kVectors, int kHeld>
__global__ void softmax_rows(Reals scores, Reals probabilities, Index width) {
  auto* const slots = reinterpret_cast<float*>(shared_bytes());
  const Index offset = static_cast<Index>(blockIdx.x) * width;
  const HeldRow<kVectors, kHeld> row(scores, offset, static_cast<int>(threadIdx.x),
                                     static_cast<int>(blockDim.x), width);
  float maximum = -kInfinity;
  row.each([&](const Eight<kVectors>& at, const float(&values)[kEight]) {
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) maximum = fmaxf(maximum, at.has(i) ? values[i] : -kInfinity);
  });
  maximum = block_maximum(maximum, slots);
  float sum = 0;
  row.each([&](const Eight<kVectors>& at, const float(&values)[kEight]) {
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) sum += at.has(i) ? expf(values[i] - maximum) : 0.0F;
  });
  const float inverse = 1.0F / block_sum(sum, slots);
  row.each([&](const Eight<kVectors>& at, const float(&values)[kEight]) {
    float out[kEight];
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) out[i] = expf(values[i] - maximum) * inverse;
    write(probabilities, offset, at, out);
  });
}

// d scores = P o (d P - rowsum(P o d P)), in place.
template <bool kVectors, int kHeld>
__global__ void softmax_backward_rows(Reals probabilities, Reals gradient, Index width) {
  auto* const slots = reinterpret_cast<float*>(shared_bytes());
  const Index offset = static_cast<Index>(blockIdx.x) * width;
  const HeldRow<kVectors, kHeld> row(gradient, offset, static_cast<int>(threadIdx.x),
                                     static_cast<int>(blockDim.x), width);
  float sum = 0;
  row.each([&](const Eight<kVectors>& at, const float(&values)[kEight]) {
    float p[kEight];
    read(probabilities, offset, at, p);
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) sum += at.has(i) ? p[i] * values[i] : 0.0F;
  });
  const float dot = block_sum(sum, slots);
  row.each([&](const Eight<kVectors>& at, const float(&values)[kEight]) {
    float p[kEight];
    float out[kEight];
    read(probabilities, offset, at, p);
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) out[i] = p[i] * (values[i] - dot);
    write(gradient, offset, at, out);
  });
}

// ---- the host's side ----

struct Operands {
  const Kernel& kernel;
  AttentionNumbers n;

  // Heads that follow each other in rows of `width` elements, the first of them number `head`.
  Heads heads(const Tensor& tensor, Index width, int head) const {
    return {reals(tensor), static_cast<Index>(head) * n.head_dim, n.sequence * width, n.head_dim, width, 1};
  }
  Heads queries(const Tensor& query_key) const { return heads(query_key, n.query_key_stride, 0); }
  Heads keys(const Tensor& query_key) const { return heads(query_key, n.query_key_stride, n.heads); }
  Heads values(const Tensor& packed) const { return heads(packed, n.packed_stride, n.heads + n.kv_heads); }
  Heads context(const Tensor& tensor) const { return heads(tensor, n.context_stride(), 0); }
  Heads squares(const Tensor& tensor) const {
    const Index square = static_cast<Index>(n.sequence) * n.sequence;
    return {reals(tensor), 0, n.heads * square, square, n.sequence, 1};
  }
};

template <Finish finish>
void start(const Operands& operands, const Launcher& launcher, const Heads& left, const Heads& right,
           const Heads& results, const Product& product) {
  const auto squares = div_ceil(product.rows, kSide) * div_ceil(product.columns, kSide);
  const LaunchShape shape{dim3(static_cast<unsigned>(squares), static_cast<unsigned>(product.heads),
                               static_cast<unsigned>(operands.n.sequences)),
                          dim3(kThreads), sizeof(float) * 2 * kDepth * kStride};
  launch<head_product<finish>>(launcher.stream, shape, OperandRanges(operands.kernel), left, right, results,
                               product, operands.n);
}

// Of queries with keys, or of the context's gradient with values: squares.
Product to_squares(const AttentionNumbers& n, float factor) {
  return {n.sequence, n.sequence, n.head_dim, n.heads, 1, n.group(), Inner::all, factor};
}
// Of squares with keys or values: a row for each query.
Product to_queries(const AttentionNumbers& n, float factor) {
  return {n.sequence, n.head_dim, n.sequence, n.heads, 1, n.group(), Inner::until_row, factor};
}
// Of transposed squares with queries or the context's gradient, summed over a group: a row for each key.
Product to_keys(const AttentionNumbers& n, float factor) {
  return {n.sequence, n.head_dim, n.sequence, n.kv_heads, n.group(), 1, Inner::from_row, factor};
}

constexpr int kMostThreads = 256;
constexpr std::size_t kSlotBytes = sizeof(float) * kMostThreads / kWarpLanes;

// choose.operator()<vectors, held>(shape) for rows of a width.
template <class Choose>
void with_rows(const Kernel& kernel, bool aligned, const Choose& choose) {
  const Index rows = kernel.dims[0];
  const Index width = kernel.dims[1];
  const auto threads = static_cast<unsigned>(
      std::clamp<Index>(round_up(div_ceil(width, kEight), kWarpLanes), kWarpLanes, kMostThreads));
  const LaunchShape shape{dim3(static_cast<unsigned>(rows)), dim3(threads), kSlotBytes};
  const Index chunks = div_ceil(width, static_cast<Index>(threads) * kEight);
  with_vectors(aligned && width % kEight == 0, [&](auto vectors) {
    if (chunks <= 1) return choose.template operator()<vectors(), 1>(shape);
    if (chunks <= 4) return choose.template operator()<vectors(), 4>(shape);
    choose.template operator()<vectors(), 0>(shape);
  });
}

}  // namespace

void attention_scores(const Kernel& kernel, const Launcher& launcher) {
  const Operands at{kernel, attention_numbers(kernel, 1)};
  const Tensor& query_key = query_key_of(kernel, 0, 1);
  start<Finish::scores>(at, launcher, at.queries(query_key), at.keys(query_key).transposed(),
                        at.squares(kernel.operands[2]), to_squares(at.n, at.n.scale));
}

void softmax_forward(const Kernel& kernel, const Launcher& launcher) {
  const Tensor& scores = kernel.operands[0];
  const Tensor& probabilities = kernel.operands[1];
  with_rows(kernel, are_aligned(scores, probabilities),
            [&]<bool kVectors, int kHeld>(const LaunchShape& shape) {
              launch<softmax_rows<kVectors, kHeld>>(launcher.stream, shape, OperandRanges(kernel),
                                                    reals(scores), reals(probabilities), kernel.dims[1]);
            });
}

void attention_values(const Kernel& kernel, const Launcher& launcher) {
  const Operands at{kernel, attention_numbers(kernel, -1)};
  start<Finish::stored>(at, launcher, at.squares(kernel.operands[0]), at.values(kernel.operands[1]),
                        at.context(kernel.operands[2]), to_queries(at.n, 1));
}

void attention_values_backward(const Kernel& kernel, const Launcher& launcher) {
  const Operands at{kernel, attention_numbers(kernel, -1)};
  const Tensor& dy = kernel.operands[0];
  start<Finish::masked>(at, launcher, at.context(dy), at.values(kernel.operands[2]).transposed(),
                        at.squares(kernel.operands[3]), to_squares(at.n, 1));
  start<Finish::stored>(at, launcher, at.squares(kernel.operands[1]).transposed(), at.context(dy),
                        at.values(kernel.operands[4]), to_keys(at.n, 1));
}

void softmax_backward(const Kernel& kernel, const Launcher& launcher) {
  const Tensor& probabilities = kernel.operands[0];
  const Tensor& gradient = kernel.operands[1];
  with_rows(
      kernel, are_aligned(probabilities, gradient), [&]<bool kVectors, int kHeld>(const LaunchShape& shape) {
        launch<softmax_backward_rows<kVectors, kHeld>>(launcher.stream, shape, OperandRanges(kernel),
                                                       reals(probabilities), reals(gradient), kernel.dims[1]);
      });
}

void attention_scores_backward(const Kernel& kernel, const Launcher& launcher) {
  const Operands at{kernel, attention_numbers(kernel, 2)};
  const Tensor& query_key = query_key_of(kernel, 1, 2);
  const Heads squares = at.squares(kernel.operands[0]);
  if (at.n.soft_cap > 0) {
    start<Finish::uncapped>(at, launcher, at.queries(query_key), at.keys(query_key).transposed(), squares,
                            to_squares(at.n, at.n.scale));
  }
  // dqkv has qkv's layout, whether or not queries and keys are normed.
  const Operands packed{kernel, attention_numbers(kernel, -1)};
  start<Finish::stored>(at, launcher, squares, at.keys(query_key), packed.queries(kernel.operands[3]),
                        to_queries(at.n, at.n.scale));
  start<Finish::stored>(at, launcher, squares.transposed(), at.queries(query_key),
                        packed.keys(kernel.operands[3]), to_keys(at.n, at.n.scale));
}

}  // namespace zeroplan::executor::cuda
