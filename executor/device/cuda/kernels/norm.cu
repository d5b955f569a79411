#include "executor/device/cuda/kernels.hpp"
#include "executor/device/cuda/kernels/norm.cuh"

namespace zeroplan::executor::cuda {

namespace {

constexpr int kChunks = 4;  // of eight elements of a row that a thread holds
constexpr int kWarpsOfBlock = 4;
constexpr int kMostThreads = 512;
constexpr Index kWidestOfWarp = Index{kWarpLanes} * kEight * kChunks;
constexpr Index kWidestHeld = Index{kMostThreads} * kEight * kChunks;

// A warp or a block for each row. Rows of up to kWidestHeld elements are read once.
template <bool kVectors, bool kWarps, int kHeld>
__global__ void __launch_bounds__(kWarps ? kWarpLanes* kWarpsOfBlock : kMostThreads)
    normalize(Norm norm, float epsilon, Reals x, NormRows rows_of_x, Reals parameters, Reals y,
              NormRows rows_of_y, float* statistics) {
  auto* slots = reinterpret_cast<float*>(shared_bytes());
  const int threads = kWarps ? kWarpLanes : static_cast<int>(blockDim.x);
  const int thread = kWarps ? static_cast<int>(threadIdx.x) % kWarpLanes : static_cast<int>(threadIdx.x);
  const Index row = kWarps ? static_cast<Index>(blockIdx.x) * kWarpsOfBlock + threadIdx.x / kWarpLanes
                           : static_cast<Index>(blockIdx.x);
  if (row >= norm.rows) return;  // a whole warp
  const HeldRow<kVectors, kHeld> held(x, rows_of_x(row), thread, threads, norm.width);
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
    write(y, rows_of_y(row), at, out);
  });
  if (thread == 0) norm.store(statistics, row, found);
}

template <bool kVectors, bool kWarps, int kHeld>
void start(const Kernel& kernel, const Launcher& launcher, const Norm& norm) {
  const Tensor& x = kernel.operands[0];
  const Tensor& y = kernel.operands[2];
  LaunchShape shape;
  if (kWarps) {
    shape.grid = dim3(static_cast<unsigned>(div_ceil(norm.rows, kWarpsOfBlock)));
    shape.block = dim3(kWarpLanes * kWarpsOfBlock);
  } else {
    shape.grid = dim3(static_cast<unsigned>(norm.rows));
    shape.block = dim3(static_cast<unsigned>(row_threads(norm.width, kChunks, kMostThreads)));
    shape.shared_bytes = sizeof(float) * kMostThreads / kWarpLanes;
  }
  launch<normalize<kVectors, kWarps, kHeld>>(launcher.stream, shape, OperandRanges(kernel), norm,
                                             static_cast<float>(settings_of(kernel).model.norm_epsilon),
                                             reals(x), norm.rows_of(x), reals(kernel.operands[1]), reals(y),
                                             norm.rows_of(y),
                                             reinterpret_cast<float*>(kernel.operands[3].data));
}

}  // namespace

void norm_forward(const Kernel& kernel, const Launcher& launcher) {
  const Tensor& x = kernel.operands[0];
  const Norm norm = norm_of(kernel, x, kernel.operands[1], kernel.operands[3]);
  if (norm.width == 0) return;
  with_vectors(norm.takes_vectors(x) && norm.takes_vectors(kernel.operands[2]), [&](auto vectors) {
    if (norm.width <= kWidestOfWarp) {
      start<vectors(), true, kChunks>(kernel, launcher, norm);
    } else if (norm.width <= kWidestHeld) {
      start<vectors(), false, kChunks>(kernel, launcher, norm);
    } else {
      start<vectors(), false, 0>(kernel, launcher, norm);
    }
  });
}

}  // namespace zeroplan::executor::cuda
