#include "executor/device/cuda/kernels.hpp"
#include "executor/device/cuda/kernels/column_sums.hpp"
#include "executor/device/cuda/kernels/norm.cuh"

// With n = (x - mean) / deviation and g = dy w:
//   dx = (g - mean(g) - n mean(g n)) / deviation,   dw += sum over rows of dy n,   db += sum over rows of dy
// where RMSNorm has mean 0 and leaves out mean(g).
namespace zeroplan::executor::cuda {

namespace {

// Of eight elements of a row, which a thread holds with their parameters' gradients. With a block for each row and no
// vectors, registers are too few for two.
template <bool kVectors, bool kWarps>
inline constexpr int kChunks = kVectors || kWarps ? 2 : 1;
constexpr int kThreads = 512;
constexpr int kWarpThreads = 256;  // of a block whose warps have a row each
constexpr int kWarpsOfBlock = kWarpThreads / kWarpLanes;
constexpr Index kWidestOfWarp = Index{kWarpLanes} * kEight * kChunks<true, true>;
// Rows are divided into so many ranges at most, a block each, whatever the device: the order of sums is that of shapes.
constexpr Index kRanges = 256, kRangesOfWarps = 1024;

struct Places {
  NormRows dy, x, dx;
};

// A part of a row: dy and n = (x - mean) * scale.
template <bool kVectors>
__device__ __forceinline__ void dy_and_normed(const Reals& dy, Index dy_offset, const Reals& x,
                                              Index x_offset, const Eight<kVectors>& at,
                                              const NormStatistics& statistics, float (&up)[kEight],
                                              float (&normed)[kEight]) {
  const auto fetched_dy = fetch(dy, dy_offset, at);
  const auto fetched_x = fetch(x, x_offset, at);
  unpack(fetched_dy, dy, up);
  unpack(fetched_x, x, normed);
  ZEROPLAN_UNROLL
  for (int i = 0; i < kEight; ++i) normed[i] = (normed[i] - statistics.mean) * statistics.scale;
}

template <bool kVectors>
__device__ __forceinline__ void write_dx(const Reals& dx, Index offset, bool overwrite,
                                         const Eight<kVectors>& at, const NormStatistics& statistics,
                                         const float (&sums)[2], const float (&up)[kEight],
                                         const float (&normed)[kEight], const float (&weight)[kEight]) {
  float out[kEight] = {};
  if (!overwrite) read(dx, offset, at, out);
  ZEROPLAN_UNROLL
  for (int i = 0; i < kEight; ++i)
    out[i] += statistics.scale * (up[i] * weight[i] - sums[0] - normed[i] * sums[1]);
  write(dx, offset, at, out);
}

// Elements that begin as 0 with the first addition.
template <bool kVectors>
__device__ __forceinline__ void add_to(const Reals& sums, Index offset, bool is_first,
                                       const Eight<kVectors>& at, const float (&values)[kEight]) {
  float total[kEight] = {};
  if (!is_first) read(sums, offset, at, total);
  ZEROPLAN_UNROLL
  for (int i = 0; i < kEight; ++i) total[i] += values[i];
  write(sums, offset, at, total);
}

// A block has a range of rows, which its warps take in turn or all its threads together. The sums of its dw and db are
// row `block` of `parts`, {ranges, 2 width}.
template <bool kVectors, bool kWarps>
__global__ void __launch_bounds__(kWarps ? kWarpThreads : kThreads)
    norm_gradients(Norm norm, Places places, Index rows_of_range, bool overwrite, Reals dy, Reals x,
                   Reals parameters, const float* statistics, Reals dx, float* parts) {
  auto* shared = reinterpret_cast<float*>(shared_bytes());
  const int threads = kWarps ? kWarpLanes : static_cast<int>(blockDim.x);
  const int thread = kWarps ? static_cast<int>(threadIdx.x) % kWarpLanes : static_cast<int>(threadIdx.x);
  const Index group = kWarps ? threadIdx.x / kWarpLanes : 0;
  constexpr Index kGroups = kWarps ? kWarpsOfBlock : 1;
  const Index begin = static_cast<Index>(blockIdx.x) * rows_of_range;
  const Index end = smaller(norm.rows, begin + rows_of_range);
  constexpr int kHeld = kChunks<kVectors, kWarps>;
  float dw[kHeld][kEight] = {};
  float db[kHeld][kEight] = {};
  for (Index row = begin + group; row < end; row += kGroups) {
    const NormStatistics statistic = norm.load(statistics, row);
    float up[kHeld][kEight];
    float normed[kHeld][kEight];
    float sums[2] = {0, 0};
    ZEROPLAN_UNROLL
    for (int c = 0; c < kHeld; ++c) {
      const Eight<kVectors> at(c, thread, threads, norm.width);
      dy_and_normed(dy, places.dy(row), x, places.x(row), at, statistic, up[c], normed[c]);
      float weight[kEight];
      norm.read_weight(parameters, at, weight);
      ZEROPLAN_UNROLL
      for (int i = 0; i < kEight; ++i) {
        if (!at.has(i)) continue;
        sums[0] += up[c][i] * weight[i];
        sums[1] += up[c][i] * weight[i] * normed[c][i];
        dw[c][i] += up[c][i] * normed[c][i];
        db[c][i] += up[c][i];
      }
    }
    row_sums<kWarps>(sums, shared);
    sums[0] = norm.centred ? sums[0] / static_cast<float>(norm.width) : 0;
    sums[1] /= static_cast<float>(norm.width);
    ZEROPLAN_UNROLL
    for (int c = 0; c < kHeld; ++c) {
      const Eight<kVectors> at(c, thread, threads, norm.width);
      float weight[kEight];
      norm.read_weight(parameters, at, weight);
      write_dx(dx, places.dx(row), overwrite, at, statistic, sums, up[c], normed[c], weight);
    }
  }
  // Of warps, one behind the other in shared memory, and then added in their order.
  float* own = kWarps ? shared + group * 2 * norm.width : parts + blockIdx.x * 2 * norm.width;
  ZEROPLAN_UNROLL
  for (int c = 0; c < kHeld; ++c) {
    const Eight<kVectors> at(c, thread, threads, norm.width);
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) {
      if (!at.has(i)) continue;
      own[at[i]] = dw[c][i];
      own[norm.width + at[i]] = db[c][i];
    }
  }
  if constexpr (kWarps) {
    __syncthreads();
    for (Index i = threadIdx.x; i < 2 * norm.width; i += blockDim.x) {
      float sum = 0;
      for (Index other = 0; other < kGroups; ++other) sum += shared[other * 2 * norm.width + i];
      parts[blockIdx.x * 2 * norm.width + i] = sum;
    }
  }
}

// The same of rows that are too long for registers: they are read twice, and sums are made where they end.
template <bool kVectors>
__global__ void __launch_bounds__(kThreads, 1)
    norm_gradients_of_long_rows(Norm norm, Places places, Index rows_of_range, bool overwrite, Reals dy,
                                Reals x, Reals parameters, const float* statistics, Reals dx, float* parts) {
  auto* slots = reinterpret_cast<float*>(shared_bytes());
  const Index chunks = (norm.width + kEight * kThreads - 1) / (kEight * kThreads);
  const Index begin = static_cast<Index>(blockIdx.x) * rows_of_range;
  const Index end = smaller(norm.rows, begin + rows_of_range);
  const Reals sums_of_range{reinterpret_cast<std::byte*>(parts + blockIdx.x * 2 * norm.width),
                            program::DataType::fp32};
  for (Index row = begin; row < end; ++row) {
    const NormStatistics statistic = norm.load(statistics, row);
    float up[kEight];
    float normed[kEight];
    float weight[kEight];
    float sums[2] = {0, 0};
    for (Index c = 0; c < chunks; ++c) {
      const Eight<kVectors> at(c, static_cast<int>(threadIdx.x), kThreads, norm.width);
      dy_and_normed(dy, places.dy(row), x, places.x(row), at, statistic, up, normed);
      norm.read_weight(parameters, at, weight);
      // What is not there is 0 of dy.
      ZEROPLAN_UNROLL
      for (int i = 0; i < kEight; ++i) {
        sums[0] += up[i] * weight[i];
        sums[1] += up[i] * weight[i] * normed[i];
        normed[i] *= up[i];
      }
      add_to(sums_of_range, 0, row == begin, at, normed);
      add_to(sums_of_range, norm.width, row == begin, at, up);
    }
    row_sums<false>(sums, slots);
    sums[0] = norm.centred ? sums[0] / static_cast<float>(norm.width) : 0;
    sums[1] /= static_cast<float>(norm.width);
    for (Index c = 0; c < chunks; ++c) {
      const Eight<kVectors> at(c, static_cast<int>(threadIdx.x), kThreads, norm.width);
      dy_and_normed(dy, places.dy(row), x, places.x(row), at, statistic, up, normed);
      norm.read_weight(parameters, at, weight);
      write_dx(dx, places.dx(row), overwrite, at, statistic, sums, up, normed, weight);
    }
  }
}

template <auto gradients>
void start(const Kernel& kernel, const Launcher& launcher, const Norm& norm, const LaunchShape& shape,
           Index rows_of_range) {
  const Tensor& dy = kernel.operands[0];
  const Tensor& x = kernel.operands[1];
  const Tensor& dx = kernel.operands[4];
  launch<gradients>(launcher.stream, shape, OperandRanges(kernel), norm,
                    Places{norm.rows_of(dy), norm.rows_of(x), norm.rows_of(dx)}, rows_of_range,
                    (kernel.flags & program::kOverwrite) != 0, reals(dy), reals(x), reals(kernel.operands[2]),
                    reinterpret_cast<const float*>(kernel.operands[3].data), reals(dx),
                    reinterpret_cast<float*>(launcher.workspace));
}

}  // namespace

void norm_backward(const Kernel& kernel, const Launcher& launcher) {
  const Tensor& dy = kernel.operands[0];
  const Tensor& x = kernel.operands[1];
  const Tensor& dx = kernel.operands[4];
  const Norm norm = norm_of(kernel, x, kernel.operands[2], kernel.operands[3]);
  if (norm.width == 0 || norm.rows == 0) return;
  const bool warps = norm.width <= kWidestOfWarp;
  const Bytes range_bytes = 2 * norm.width * static_cast<Bytes>(sizeof(float));
  const Index most = std::clamp<Index>(kKernelWorkspace / range_bytes, 1, warps ? kRangesOfWarps : kRanges);
  const Index rows_of_range = div_ceil(norm.rows, most);
  const Index ranges = div_ceil(norm.rows, rows_of_range);
  require_workspace(kernel, launcher, ranges * range_bytes);
  LaunchShape shape{dim3(static_cast<unsigned>(ranges)), dim3(kThreads),
                    sizeof(float) * 2 * kThreads / kWarpLanes};
  const bool all = norm.takes_vectors(dy) && norm.takes_vectors(x) && norm.takes_vectors(dx);
  with_vectors(all, [&](auto vectors) {
    constexpr int kHeld = kChunks<vectors(), false>;
    if (warps) {
      shape.block = dim3(kWarpThreads);
      shape.shared_bytes = static_cast<std::size_t>(range_bytes) * kWarpsOfBlock;
      start<norm_gradients<vectors(), true>>(kernel, launcher, norm, shape, rows_of_range);
    } else if (norm.width <= Index{kThreads} * kEight * kHeld) {
      shape.block = dim3(static_cast<unsigned>(row_threads(norm.width, kHeld, kThreads)));
      start<norm_gradients<vectors(), false>>(kernel, launcher, norm, shape, rows_of_range);
    } else {
      start<norm_gradients_of_long_rows<vectors()>>(kernel, launcher, norm, shape, rows_of_range);
    }
  });
  add_parts(kernel, launcher, ranges, 2 * norm.width, kernel.operands[5],
            norm.has_bias ? 2 * norm.width : norm.width);
}

}  // namespace zeroplan::executor::cuda
