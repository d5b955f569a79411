#pragma once

#include "executor/device/cuda/kernels/norm.cuh"

// A row that is normalised by a warp or a block, wherever it comes from.
namespace zeroplan::executor::cuda {

inline constexpr int kNormChunks = 4;  // of eight elements of a row that a thread holds
inline constexpr int kNormWarps = 4;   // of a block whose warps have a row each
inline constexpr int kMostNormThreads = 512;
inline constexpr Index kWidestOfWarp = Index{kWarpLanes} * kEight * kNormChunks;
inline constexpr Index kWidestHeld = Index{kMostNormThreads} * kEight * kNormChunks;
template <bool kWarps>
inline constexpr int kNormThreads =
    kWarps ? kWarpLanes* kNormWarps : kMostNormThreads;  // of a block, at most

// Which row a thread has a part of, and which of the row's threads it is.
template <bool kWarps>
struct RowThread {
  int threads = kWarps ? kWarpLanes : static_cast<int>(blockDim.x);
  int thread = kWarps ? static_cast<int>(threadIdx.x) % kWarpLanes : static_cast<int>(threadIdx.x);
  Index row = kWarps ? static_cast<Index>(blockIdx.x) * kNormWarps + threadIdx.x / kWarpLanes
                     : static_cast<Index>(blockIdx.x);
};

template <bool kWarps>
LaunchShape norm_shape(const Norm& norm) {
  if (kWarps) {
    return {dim3(static_cast<unsigned>(div_ceil(norm.rows, kNormWarps))), dim3(kNormThreads<kWarps>), 0};
  }
  return {dim3(static_cast<unsigned>(norm.rows)),
          dim3(static_cast<unsigned>(row_threads(norm.width, kNormChunks, kMostNormThreads))),
          sizeof(float) * kMostNormThreads / kWarpLanes};
}

// `held`: the row's elements that the thread has (HeldRow).
template <bool kWarps, class Held>
__device__ __forceinline__ void normalize_row(const Norm& norm, float epsilon, const RowThread<kWarps>& own,
                                              const Held& held, const Reals& parameters, const Reals& y,
                                              Index offset_of_y, float* statistics) {
  auto* slots = reinterpret_cast<float*>(shared_bytes());
  const auto count = static_cast<float>(norm.width);

  NormStatistics found;
  if (norm.centred) {
    float sum[1] = {0};
    held.each([&](const auto&, const float(&values)[kEight]) {
      ZEROPLAN_UNROLL
      for (int i = 0; i < kEight; ++i) sum[0] += values[i];  // what is not there is 0
    });
    row_sums<kWarps>(sum, slots);
    found.mean = sum[0] / count;
  }
  float squares[1] = {0};
  held.each([&](const auto& at, const float(&values)[kEight]) {
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) {
      const float deviation = values[i] - found.mean;
      if (at.has(i)) squares[0] += deviation * deviation;
    }
  });
  row_sums<kWarps>(squares, slots);
  found.scale = 1.0F / sqrtf(squares[0] / count + epsilon);

  held.each([&](const auto& at, const float(&values)[kEight]) {
    float weight[kEight];
    float bias[kEight] = {};
    norm.read_weight(parameters, at, weight);
    if (norm.has_bias) read_parameters(parameters, norm.aligned_parameters, norm.width, at, bias);
    float out[kEight];
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) out[i] = (values[i] - found.mean) * found.scale * weight[i] + bias[i];
    write(y, offset_of_y, at, out);
  });
  if (own.thread == 0) norm.store(statistics, own.row, found);
}

}  // namespace zeroplan::executor::cuda
