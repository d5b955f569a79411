#include <algorithm>

#include "executor/device/cuda/checks.hpp"
#include "executor/device/cuda/kernels/column_sums.hpp"
#include "executor/device/cuda/kernels/reals.cuh"

namespace zeroplan::executor::cuda {

namespace {

// A block's threads: neighbours have neighbouring columns, and kLanes of them share a column.
constexpr int kLanes = 8;
constexpr Index kTile = Index{kWarpLanes} * kEight;  // columns of a block that sums rows
constexpr Index kBlocks = 1024;

// The sum of a column over the block's lanes, in their order; of lane 0. `slots`: a number of each thread.
__device__ __forceinline__ float sum_of_lanes(float value, float* slots) {
  const unsigned column = threadIdx.x % kWarpLanes;
  slots[threadIdx.x] = value;
  __syncthreads();
  float sum = 0;
  if (threadIdx.x < kWarpLanes) {
    for (unsigned lane = 0; lane < kLanes; ++lane) sum += slots[lane * kWarpLanes + column];
  }
  __syncthreads();
  return sum;
}

// Blocks {tiles of columns, ranges of rows}; a range's sums are a row of `parts`.
template <bool kVectors>
__global__ void __launch_bounds__(kWarpLanes* kLanes)
    sum_rows(Reals from, Index rows, Index columns, Index rows_of_range, float* parts) {
  auto* slots = reinterpret_cast<float*>(shared_bytes());
  const auto column = static_cast<int>(threadIdx.x % kWarpLanes);
  const Index lane = threadIdx.x / kWarpLanes;
  const Index range = blockIdx.y;
  const Eight<kVectors> at(blockIdx.x, column, kWarpLanes, columns);
  const Index end = smaller(rows, (range + 1) * rows_of_range);
  float sums[kEight] = {};
  ZEROPLAN_UNROLL_4
  for (Index row = range * rows_of_range + lane; row < end; row += kLanes) {
    float values[kEight];
    read(from, row * columns, at, values);
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) sums[i] += values[i];
  }
  for (int i = 0; i < kEight; ++i) {
    const float sum = sum_of_lanes(sums[i], slots);
    if (lane == 0 && at.has(i)) parts[range * columns + at[i]] = sum;
  }
}

__global__ void __launch_bounds__(kWarpLanes* kLanes)
    sum_parts(const float* parts, Index count, Index stride, Reals to, Index columns) {
  auto* slots = reinterpret_cast<float*>(shared_bytes());
  const Index column = static_cast<Index>(blockIdx.x) * kWarpLanes + threadIdx.x % kWarpLanes;
  const Index lane = threadIdx.x / kWarpLanes;
  float sum = 0;
  if (column < columns) {
    ZEROPLAN_UNROLL_4
    for (Index part = lane; part < count; part += kLanes) sum += parts[part * stride + column];
  }
  sum = sum_of_lanes(sum, slots);
  if (lane == 0 && column < columns) store_real(to, column, load_real(to, column) + sum);
}

constexpr std::size_t kSlots = sizeof(float) * kWarpLanes * kLanes;

}  // namespace

void add_parts(const Kernel& kernel, const Launcher& launcher, Index parts, Index stride, const Tensor& to,
               Index columns) {
  const LaunchShape shape{dim3(static_cast<unsigned>(div_ceil(columns, kWarpLanes))),
                          dim3(kWarpLanes * kLanes), kSlots};
  launch<sum_parts>(launcher.stream, shape, OperandRanges(kernel),
                    reinterpret_cast<const float*>(launcher.workspace), parts, stride, reals(to), columns);
}

void add_column_sums(const Kernel& kernel, const Launcher& launcher, const Tensor& from, Index rows,
                     Index columns, const Tensor& to) {
  if (columns == 0) return;
  const Index tiles = div_ceil(columns, kTile);
  const Index most = std::clamp<Index>(kBlocks / tiles, 1, std::max<Index>(1, div_ceil(rows, 4 * kLanes)));
  const Index rows_of_range = std::max<Index>(1, div_ceil(rows, most));
  const Index ranges = div_ceil(rows, rows_of_range);
  require_workspace(kernel, launcher, ranges * columns * static_cast<Bytes>(sizeof(float)));
  const LaunchShape shape{dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(ranges)),
                          dim3(kWarpLanes * kLanes), kSlots};
  with_vectors(is_aligned(from) && columns % kEight == 0, [&](auto vectors) {
    launch<sum_rows<vectors()>>(launcher.stream, shape, OperandRanges(kernel), reals(from), rows, columns,
                                rows_of_range, reinterpret_cast<float*>(launcher.workspace));
  });
  add_parts(kernel, launcher, ranges, columns, to, columns);
}

}  // namespace zeroplan::executor::cuda
