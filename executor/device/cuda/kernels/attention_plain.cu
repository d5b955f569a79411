#include <cmath>
#include <limits>

#include "executor/device/cuda/checks.hpp"
#include "executor/device/cuda/kernels.hpp"
#include "executor/device/cuda/kernels/attention.cuh"

// Attention without tensor cores, in fp32, for every type and head size; scores are not kept. As attention.cpp of the
// CPU's device, with L the log-sum-exp of each row and D = rowsum(dO o O):
//   O = P V,  dV = P^T dO,  dS = P o (dO V^T - D),  dQ = scale dS K,  dK = scale dS^T Q
// A block has some rows of its own, whose results it gathers in shared memory, and goes over the others in tiles of 32,
// one for each lane. Every element has one thread that adds to it, in one order.
namespace zeroplan::executor::cuda {

namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarpLanes;
constexpr int kTile = kWarpLanes;  // rows of the other side at a time
constexpr int kMostRows = 4;       // own rows of a warp

// Rows [first, first + count) of a head as fp32, a warp each; those from `end` on are 0.
__device__ __forceinline__ void load_rows(const Reals& from, Index offset, Index stride, int first, int count,
                                          int end, int dim, float* to, int to_stride) {
  for (int row = static_cast<int>(threadIdx.x) / kWarpLanes; row < count; row += kWarps) {
    const bool is_there = first + row < end;
    const Index begin = offset + static_cast<Index>(first + row) * stride;
    for (int column = static_cast<int>(threadIdx.x) % kWarpLanes; column < dim; column += kWarpLanes)
      to[row * to_stride + column] = is_there ? load_real(from, begin + column) : 0.0F;
  }
}

__device__ __forceinline__ float dot(const float* a, const float* b, int dim) {
  float sum = 0;
  for (int i = 0; i < dim; ++i) sum = fmaf(a[i], b[i], sum);
  return sum;
}

// row += sum over the tile of weights[i] tile[i], by a warp.
__device__ __forceinline__ void add_weighted(float* row, const float* weights, const float* tile, int dim) {
  for (int column = static_cast<int>(threadIdx.x % kWarpLanes); column < dim; column += kWarpLanes) {
    float sum = 0;
    for (int i = 0; i < kTile; ++i) sum = fmaf(weights[i], tile[i * (dim + 1) + column], sum);
    row[column] += sum;
  }
}

__device__ __forceinline__ void clear(float* values, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) values[i] = 0;
}

struct Score {
  float value;
  float slope;  // its derivative by the scaled product
};
__device__ __forceinline__ Score score_of(const AttentionNumbers& n, int head, float product, int distance) {
  Score score{product * n.scale, 1};
  if (n.soft_cap > 0) {
    const float t = tanhf(score.value * n.inverse_cap);
    score = {n.soft_cap * t, 1 - t * t};
  }
  if (n.is_biased) score.value -= n.slopes[head] * static_cast<float>(distance);
  return score;
}

// The block's own rows and where they are in shared memory.
struct OwnRows {
  int of_warp, count, first;
  float* shared;

  __device__ OwnRows(int rows_of_warp, int block)
      : of_warp(rows_of_warp),
        count(rows_of_warp * kWarps),
        first(block * count),
        shared(reinterpret_cast<float*>(shared_bytes())) {}
  __device__ int row(int i) const { return static_cast<int>(threadIdx.x) / kWarpLanes * of_warp + i; }
  __device__ float* panel(int number, int dim) const { return shared + number * count * dim; }
};
constexpr std::size_t shared_floats(int panels, int rows, int dim) {
  return static_cast<std::size_t>(panels * rows * dim + kTile * (dim + 1) + rows * kTile);
}

// Grid: {blocks of queries, heads, sequences}.
__global__ void __launch_bounds__(kThreads, 6)
    plain_forward(Reals query_key, Reals packed, Reals y, float* log_sum_exp, int rows_of_warp,
                  AttentionNumbers n) {
  const int dim = n.head_dim;
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / n.group();
  const auto at = static_cast<int>(blockIdx.z);
  const int lane = static_cast<int>(threadIdx.x % kWarpLanes);
  const OwnRows own(rows_of_warp, static_cast<int>(gridDim.x - 1 - blockIdx.x));  // the longest first
  float* query = own.panel(0, dim);
  float* out = own.panel(1, dim);
  float* tile = own.panel(2, dim);
  float* weights = tile + kTile * (dim + 1);
  load_rows(query_key, n.query(at, head), n.query_key_stride, own.first, own.count, n.sequence, dim, query,
            dim);
  clear(out, own.count * dim);
  float maxima[kMostRows];
  float sums[kMostRows];
  for (int i = 0; i < kMostRows; ++i) {
    maxima[i] = -kInfinity;
    sums[i] = 0;
  }
  const int end = own.first + own.count < n.sequence ? own.first + own.count : n.sequence;
  for (int first_key = n.first_seen(own.first); first_key < end; first_key += kTile) {
    __syncthreads();
    load_rows(query_key, n.key(at, kv_head), n.query_key_stride, first_key, kTile, n.sequence, dim, tile,
              dim + 1);
    __syncthreads();
    for (int i = 0; i < kMostRows; ++i) {
      if (i >= own.of_warp) break;
      const int row = own.row(i);
      const int key = first_key + lane;
      const bool is_seen = n.sees(own.first + row, key);
      const float product = dot(query + row * dim, tile + lane * (dim + 1), dim);
      const float score = is_seen ? score_of(n, head, product, own.first + row - key).value : -kInfinity;
      const float maximum = fmaxf(maxima[i], warp_maximum(score));
      const bool any = maximum != -kInfinity;
      const float kept = any ? expf(maxima[i] - maximum) : 1.0F;
      const float weight = is_seen ? expf(score - maximum) : 0.0F;
      sums[i] = sums[i] * kept + warp_sum(weight);
      maxima[i] = maximum;
      weights[row * kTile + lane] = weight;
      for (int column = lane; column < dim; column += kWarpLanes) out[row * dim + column] *= kept;
    }
    __syncthreads();
    load_rows(packed, n.value(at, kv_head), n.packed_stride, first_key, kTile, n.sequence, dim, tile,
              dim + 1);
    __syncthreads();
    for (int i = 0; i < own.of_warp; ++i) {
      add_weighted(out + own.row(i) * dim, weights + own.row(i) * kTile, tile, dim);
    }
  }
  for (int i = 0; i < kMostRows; ++i) {
    if (i >= own.of_warp) break;
    const int row = own.row(i);
    const int token = own.first + row;
    if (token >= n.sequence) break;
    const float inverse = 1.0F / sums[i];
    for (int column = lane; column < dim; column += kWarpLanes) {
      store_real(y, n.context(at, head) + token * n.context_stride() + column,
                 out[row * dim + column] * inverse);
    }
    if (lane == 0) log_sum_exp[n.number(at, token, head)] = maxima[i] + logf(sums[i]);
  }
}

// d queries. Grid: {blocks of queries, heads, sequences}.
__global__ void __launch_bounds__(kThreads, 6)
    plain_backward_queries(Reals dy, Reals query_key, Reals packed, const float* log_sum_exp,
                           const float* row_dots, Reals gradient, int rows_of_warp, AttentionNumbers n) {
  const int dim = n.head_dim;
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / n.group();
  const auto at = static_cast<int>(blockIdx.z);
  const int lane = static_cast<int>(threadIdx.x % kWarpLanes);
  const OwnRows own(rows_of_warp, static_cast<int>(gridDim.x - 1 - blockIdx.x));
  float* query = own.panel(0, dim);
  float* d_out = own.panel(1, dim);
  float* d_query = own.panel(2, dim);
  float* tile = own.panel(3, dim);
  float* weights = tile + kTile * (dim + 1);
  load_rows(query_key, n.query(at, head), n.query_key_stride, own.first, own.count, n.sequence, dim, query,
            dim);
  load_rows(dy, n.context(at, head), n.context_stride(), own.first, own.count, n.sequence, dim, d_out, dim);
  clear(d_query, own.count * dim);
  const int end = own.first + own.count < n.sequence ? own.first + own.count : n.sequence;
  for (int first_key = n.first_seen(own.first); first_key < end; first_key += kTile) {
    __syncthreads();
    load_rows(packed, n.value(at, kv_head), n.packed_stride, first_key, kTile, n.sequence, dim, tile,
              dim + 1);
    __syncthreads();
    for (int i = 0; i < own.of_warp; ++i) {
      const int row = own.row(i);
      weights[row * kTile + lane] = dot(d_out + row * dim, tile + lane * (dim + 1), dim);
    }
    __syncthreads();
    load_rows(query_key, n.key(at, kv_head), n.query_key_stride, first_key, kTile, n.sequence, dim, tile,
              dim + 1);
    __syncthreads();
    for (int i = 0; i < own.of_warp; ++i) {
      const int row = own.row(i);
      const int token = own.first + row;
      const int key = first_key + lane;
      float d_score = 0;
      if (token < n.sequence && n.sees(token, key)) {
        const float product = dot(query + row * dim, tile + lane * (dim + 1), dim);
        const Score score = score_of(n, head, product, token - key);
        const float probability = expf(score.value - log_sum_exp[n.number(at, token, head)]);
        d_score =
            probability * (weights[row * kTile + lane] - row_dots[n.number(at, token, head)]) * score.slope;
      }
      weights[row * kTile + lane] = d_score;
      __syncwarp();
      add_weighted(d_query + row * dim, weights + row * kTile, tile, dim);
    }
  }
  for (int i = 0; i < own.of_warp; ++i) {
    const int row = own.row(i);
    const int token = own.first + row;
    if (token >= n.sequence) break;
    for (int column = lane; column < dim; column += kWarpLanes) {
      store_real(gradient, n.packed_query(at, head) + token * n.packed_stride + column,
                 n.scale * d_query[row * dim + column]);
    }
  }
}

// d keys and d values, summed over the heads of a group. Grid: {blocks of keys, key-value heads, sequences}.
__global__ void __launch_bounds__(kThreads, 6)
    plain_backward_keys(Reals dy, Reals query_key, Reals packed, const float* log_sum_exp,
                        const float* row_dots, Reals gradient, int rows_of_warp, AttentionNumbers n) {
  const int dim = n.head_dim;
  const int kv_head = static_cast<int>(blockIdx.y);
  const auto at = static_cast<int>(blockIdx.z);
  const int lane = static_cast<int>(threadIdx.x % kWarpLanes);
  const OwnRows own(rows_of_warp, static_cast<int>(blockIdx.x));
  float* key = own.panel(0, dim);
  float* value = own.panel(1, dim);
  float* d_key = own.panel(2, dim);
  float* d_value = own.panel(3, dim);
  float* tile = own.panel(4, dim);
  float* weights = tile + kTile * (dim + 1);
  load_rows(query_key, n.key(at, kv_head), n.query_key_stride, own.first, own.count, n.sequence, dim, key,
            dim);
  load_rows(packed, n.value(at, kv_head), n.packed_stride, own.first, own.count, n.sequence, dim, value, dim);
  clear(d_key, own.count * dim);
  clear(d_value, own.count * dim);
  const int last = own.first + own.count < n.sequence ? own.first + own.count - 1 : n.sequence - 1;
  const int end = n.seen_until(last);
  for (int head = kv_head * n.group(); head < (kv_head + 1) * n.group(); ++head) {
    for (int first = own.first; first < end; first += kTile) {
      const int token = first + lane;
      const bool is_there = token < n.sequence;
      const float log_sum = is_there ? log_sum_exp[n.number(at, token, head)] : 0.0F;
      const float row_dot = is_there ? row_dots[n.number(at, token, head)] : 0.0F;
      __syncthreads();
      load_rows(query_key, n.query(at, head), n.query_key_stride, first, kTile, n.sequence, dim, tile,
                dim + 1);
      __syncthreads();
      float factors[kMostRows];  // probabilities by the slopes of their scores
      for (int i = 0; i < kMostRows; ++i) {
        if (i >= own.of_warp) break;
        const int row = own.row(i);
        const bool is_seen = is_there && n.sees(token, own.first + row);
        const float product = dot(key + row * dim, tile + lane * (dim + 1), dim);
        const Score score = score_of(n, head, product, token - own.first - row);
        const float probability = is_seen ? expf(score.value - log_sum) : 0.0F;
        factors[i] = probability * score.slope;
        weights[row * kTile + lane] = probability;
      }
      __syncthreads();
      load_rows(dy, n.context(at, head), n.context_stride(), first, kTile, n.sequence, dim, tile, dim + 1);
      __syncthreads();
      for (int i = 0; i < kMostRows; ++i) {
        if (i >= own.of_warp) break;
        const int row = own.row(i);
        add_weighted(d_value + row * dim, weights + row * kTile, tile, dim);
        const float d_probability = dot(value + row * dim, tile + lane * (dim + 1), dim);
        __syncwarp();
        weights[row * kTile + lane] = factors[i] * (d_probability - row_dot);
      }
      __syncthreads();
      load_rows(query_key, n.query(at, head), n.query_key_stride, first, kTile, n.sequence, dim, tile,
                dim + 1);
      __syncthreads();
      for (int i = 0; i < own.of_warp; ++i) {
        add_weighted(d_key + own.row(i) * dim, weights + own.row(i) * kTile, tile, dim);
      }
    }
  }
  for (int i = 0; i < own.of_warp; ++i) {
    const int row = own.row(i);
    const int token = own.first + row;
    if (token >= n.sequence) break;
    for (int column = lane; column < dim; column += kWarpLanes) {
      store_real(gradient, n.packed_key(at, kv_head) + token * n.packed_stride + column,
                 n.scale * d_key[row * dim + column]);
      store_real(gradient, n.value(at, kv_head) + token * n.packed_stride + column,
                 d_value[row * dim + column]);
    }
  }
}

// Sums of dy y over a head, by `lanes` lanes each; a power of 2.
template <bool kVectors>
__global__ void __launch_bounds__(kFlatThreads)
    row_dot(Reals dy, Reals y, float* sums, Index rows, int dim, int lanes) {
  const Index row = global_thread() / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const bool is_there = row < rows;
  float sum = 0;
  for (Index chunk = 0; is_there && chunk * kEight * lanes < dim; ++chunk) {
    const Eight<kVectors> at(chunk, lane, lanes, dim);
    float a[kEight];
    float b[kEight];
    read(dy, row * dim, at, a);
    read(y, row * dim, at, b);
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) sum = fmaf(a[i], b[i], sum);
  }
  for (int apart = lanes / 2; apart > 0; apart /= 2) sum += __shfl_xor_sync(kAllLanes, sum, apart);
  if (is_there && lane == 0) sums[row] = sum;
}

// How many own rows a warp has with so many panels: as many as fit.
int rows_of_warp(const Kernel& kernel, const Launcher& launcher, int panels) {
  const auto dim = static_cast<int>(kernel.dims[3]);
  for (int rows = kMostRows; rows > 0; rows /= 2) {
    if (shared_floats(panels, rows * kWarps, dim) * sizeof(float) <= most_shared_bytes(launcher.sm))
      return rows;
  }
  refuse(kernel, "its heads are too large for a block's shared memory");
}

LaunchShape plain_shape(const AttentionNumbers& n, int heads, int rows_of_warp, int panels) {
  const int rows = rows_of_warp * kWarps;
  return {dim3(static_cast<unsigned>(div_ceil(n.sequence, rows)), static_cast<unsigned>(heads),
               static_cast<unsigned>(n.sequences)),
          dim3(kThreads), shared_floats(panels, rows, n.head_dim) * sizeof(float)};
}

}  // namespace

std::size_t most_shared_bytes(int sm) {
  constexpr std::size_t kKiBytes = 1024;
  if (sm == 75) return 64 * kKiBytes;
  if (sm == 80 || sm == 87) return 163 * kKiBytes;
  if (sm >= 90 && sm < 120) return 227 * kKiBytes;
  return sm >= 86 ? 99 * kKiBytes : 96 * kKiBytes;
}

AttentionNumbers attention_numbers(const Kernel& kernel, int normed) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max() / 2;
  constexpr std::int64_t kMostBlocks = 65535;  // of a grid's second and third dimension
  const program::ModelConstants& model = settings_of(kernel).model;
  const std::int64_t heads = kernel.dims[2];
  const std::int64_t kv_heads = kernel.extra;
  if (kv_heads == 0 || heads % kv_heads != 0) {
    refuse(kernel, "extra must be the key-value heads, a divisor of the heads");
  }
  if (kernel.dims[1] > kMost || kernel.dims[0] > kMostBlocks || heads > kMostBlocks ||
      kernel.dims[3] > 4096) {
    refuse(kernel, "more sequences, positions, heads or elements of a head than kernels count");
  }
  AttentionNumbers n;
  n.sequences = static_cast<int>(kernel.dims[0]);
  n.sequence = static_cast<int>(kernel.dims[1]);
  n.heads = static_cast<int>(heads);
  n.kv_heads = static_cast<int>(kv_heads);
  n.head_dim = static_cast<int>(kernel.dims[3]);
  n.packed_stride = (heads + 2 * kv_heads) * kernel.dims[3];
  const bool is_normed = normed >= 0 && static_cast<bool>(kernel.operands[static_cast<std::size_t>(normed)]);
  n.query_key_stride = is_normed ? (heads + kv_heads) * kernel.dims[3] : n.packed_stride;
  const double scale = 1.0 / std::sqrt(static_cast<double>(kernel.dims[3]));
  n.scale = static_cast<float>(model.attention_scale > 0 ? model.attention_scale : scale);
  n.soft_cap = static_cast<float>(model.attention_soft_cap);
  if (n.soft_cap > 0) n.inverse_cap = 1 / n.soft_cap;
  if (model.window.is_windowed(kernel.layer)) {
    n.window = model.window.kind;
    n.window_size = static_cast<int>(std::min(model.window.size, kMost));
  }
  n.is_biased = model.alibi_heads > 0;
  if (n.is_biased && heads > kMostBiasedHeads) refuse(kernel, "more heads than ALiBi has slopes for");
  for (int head = 0; n.is_biased && head < n.heads; ++head) {
    n.slopes[head] = static_cast<float>(model.alibi_slope(head));
  }
  return n;
}

void plain_attention_forward(const Kernel& kernel, const Launcher& launcher) {
  constexpr int kPanels = 2;
  const AttentionNumbers n = attention_numbers(kernel, 1);
  const int rows = rows_of_warp(kernel, launcher, kPanels);
  launch<plain_forward>(launcher.stream, plain_shape(n, n.heads, rows, kPanels), OperandRanges(kernel),
                        reals(query_key_of(kernel, 0, 1)), reals(kernel.operands[0]),
                        reals(kernel.operands[2]), kernel.operands[3].as<float>().data(), rows, n);
}

void attention_row_dot(const Kernel& kernel, const Launcher& launcher) {
  const AttentionNumbers n = attention_numbers(kernel, -1);
  const Index rows = static_cast<Index>(n.sequences) * n.sequence * n.heads;
  int lanes = 1;
  while (lanes < kWarpLanes && lanes * kEight < n.head_dim) lanes *= 2;
  const LaunchShape shape{dim3(static_cast<unsigned>(div_ceil(rows * lanes, kFlatThreads))),
                          dim3(kFlatThreads), 0};
  const Tensor& dy = kernel.operands[0];
  const Tensor& y = kernel.operands[1];
  with_vectors(n.head_dim % kEight == 0 && are_aligned(dy, y), [&](auto vectors) {
    launch<row_dot<vectors()>>(launcher.stream, shape, OperandRanges(kernel), reals(dy), reals(y),
                               kernel.operands[2].as<float>().data(), rows, n.head_dim, lanes);
  });
}

void plain_attention_backward(const Kernel& kernel, const Launcher& launcher) {
  const AttentionNumbers n = attention_numbers(kernel, 2);
  const auto start = [&]<auto function>(int heads, int panels) {
    const int rows = rows_of_warp(kernel, launcher, panels);
    launch<function>(launcher.stream, plain_shape(n, heads, rows, panels), OperandRanges(kernel),
                     reals(kernel.operands[0]), reals(query_key_of(kernel, 1, 2)), reals(kernel.operands[1]),
                     kernel.operands[3].as<float>().data(), kernel.operands[4].as<float>().data(),
                     reals(kernel.operands[5]), rows, n);
  };
  start.template operator()<plain_backward_queries>(n.heads, 3);
  start.template operator()<plain_backward_keys>(n.kv_heads, 4);
}

}  // namespace zeroplan::executor::cuda
