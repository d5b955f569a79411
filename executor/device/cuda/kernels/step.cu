#include <algorithm>
#include <limits>

#include "executor/device/cuda/checks.hpp"
#include "executor/device/cuda/kernels.hpp"
#include "executor/device/cuda/kernels/reals.cuh"
#include "executor/device/step_rules.hpp"

namespace zeroplan::executor::cuda {

namespace {

constexpr Index kMostBlocks = 1024;

struct Squares {
  double own, replicated;
};

// Of a block's threads, by halves; in the first of them. `slots`: one of each thread.
__device__ __forceinline__ Squares sum_of_block(const Squares& value, Squares* slots) {
  slots[threadIdx.x] = value;
  for (unsigned half = kFlatThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      slots[threadIdx.x].own += slots[threadIdx.x + half].own;
      slots[threadIdx.x].replicated += slots[threadIdx.x + half].replicated;
    }
  }
  return slots[0];
}

// The squares of every gridDim.x-th stretch of 8 elements of each thread, and the last few apart.
template <bool kVectors>
__global__ void __launch_bounds__(kFlatThreads)
    sum_squares(Reals gradient, Index elements, Index distinct, Squares* parts) {
  Squares sums{0, 0};
  const auto add = [&](const auto& at) {
    float values[kEight];
    read(gradient, 0, at, values);
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) {
      const double square = static_cast<double>(values[i]) * static_cast<double>(values[i]);
      (at[i] < distinct ? sums.own : sums.replicated) += square;  // 0 of what is not there
    }
  };
  const Index whole = kVectors ? elements / kEight * kEight : elements;
  for (Index chunk = blockIdx.x; chunk * kEight * kFlatThreads < whole; chunk += gridDim.x) {
    const Eight<kVectors> at(chunk, static_cast<int>(threadIdx.x), kFlatThreads, whole);
    if (at.any()) add(at);
  }
  if constexpr (kVectors) {
    const Eight<false> rest(whole + threadIdx.x, elements);
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x < kEight && rest.any()) add(rest);
  }
  sums = sum_of_block(sums, reinterpret_cast<Squares*>(shared_bytes()));
  if (threadIdx.x == 0) parts[blockIdx.x] = sums;
}

// One block.
__global__ void __launch_bounds__(kFlatThreads)
    finish_norm(const Squares* parts, Index count, bool counts_replicated, float* scalars) {
  Squares sums{0, 0};
  for (Index i = threadIdx.x; i < count; i += kFlatThreads) {
    sums.own += parts[i].own;
    sums.replicated += parts[i].replicated;
  }
  sums = sum_of_block(sums, reinterpret_cast<Squares*>(shared_bytes()));
  if (threadIdx.x == 0) count_norm(scalars, sums.own, sums.replicated, counts_replicated);
}

template <bool kVectors>
__global__ void __launch_bounds__(kFlatThreads)
    scale_gradient(Reals gradient, const float* scalars, float clip_norm, Reals out, Index elements) {
  const bool skip = scalar_at(scalars, program::Scalar::overflow) > 0;
  const float factor = gradient_factor(scalars, clip_norm);
  over_flat<kVectors>(elements, [&](const auto& at) {
    float values[kEight];
    read(gradient, 0, at, values);
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i)
      values[i] = skip ? __int_as_float(0x7fc00000) : __fmul_rn(values[i], factor);  // NaN
    write(out, 0, at, values);
  });
}

__global__ void one_update_of_scale(float* scalars, bool dynamic, Index window) {
  update_scale(scalars, dynamic, window);
}

float* floats(const Tensor& tensor) { return reinterpret_cast<float*>(tensor.data); }

}  // namespace

void gradient_norm(const Kernel& kernel, const Launcher& launcher) {
  const Elements elements = kernel.dims[0];
  const Elements distinct = std::min(kernel.dims[1], elements);
  const Tensor& gradient = kernel.operands[0];
  const Index blocks = std::clamp<Index>(div_ceil(elements, kFlatThreads * kEight), 1, kMostBlocks);
  require_workspace(kernel, launcher, blocks * static_cast<Bytes>(sizeof(Squares)));
  auto* parts = reinterpret_cast<Squares*>(launcher.workspace);
  LaunchShape shape{dim3(static_cast<unsigned>(blocks)), dim3(kFlatThreads), sizeof(Squares) * kFlatThreads};
  with_vectors(is_aligned(gradient), [&](auto vectors) {
    launch<sum_squares<vectors()>>(launcher.stream, shape, OperandRanges(kernel), reals(gradient), elements,
                                   distinct, parts);
  });
  shape.grid = dim3(1);
  launch<finish_norm>(launcher.stream, shape, OperandRanges(kernel), parts, blocks, kernel.counts_replicated,
                      floats(kernel.operands[1]));
}

void gradient_to_fp32(const Kernel& kernel, const Launcher& launcher) {
  const Elements begin = kernel.iteration * kernel.dims[1];
  const Elements count = std::clamp<Elements>(kernel.dims[0] - begin, 0, kernel.dims[1]);
  const Tensor gradient = part_of(kernel.operands[0], begin, count);
  const Tensor& out = kernel.operands[2];
  with_vectors(are_aligned(gradient, out), [&](auto vectors) {
    launch<scale_gradient<vectors()>>(launcher.stream, flat_shape(count), OperandRanges(kernel),
                                      reals(gradient), floats(kernel.operands[1]),
                                      settings_of(kernel).clip_norm, reals(out), count);
  });
}

void scale_update(const Kernel& kernel, const Launcher& launcher) {
  const StepSettings& settings = settings_of(kernel);
  launch<one_update_of_scale>(launcher.stream, LaunchShape{dim3(1), dim3(1), 0}, OperandRanges(kernel),
                              floats(kernel.operands[0]), settings.dynamic_loss_scale, settings.scale_window);
}

}  // namespace zeroplan::executor::cuda
