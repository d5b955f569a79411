#include <algorithm>

#include "executor/device/cuda/checks.hpp"
#include "executor/device/cuda/kernels.hpp"
#include "executor/device/cuda/kernels/reals.cuh"

// Cross-entropy over a vocabulary that tensor-parallel ranks divide (Megatron-LM, arXiv 1909.08053, Section
// 3): per token loss = maximum + ln(sum of e^(logit - maximum)) - target's logit, of which maximum and the
// pair of sums cross ranks.
namespace zeroplan::executor::cuda {

using program::Scalar;

namespace {

constexpr int kThreads = 256;
constexpr int kLossThreads = 1024;
constexpr std::size_t kSlots = sizeof(float) * kThreads / kWarpLanes;

struct Logits {
  Index tokens = 0;
  Index columns = 0;  // of a row, padding included
  Index first_column = 0;
  Index vocabulary = 0;  // columns that are no padding
  float cap = 0;

  // The target's column here, or -1.
  __device__ Index column(std::int32_t target) const {
    const Index local = target - first_column;
    return target >= 0 && local >= 0 && local < vocabulary ? local : -1;
  }
};

Logits logits_of(const Kernel& kernel) {
  const Logits logits{kernel.dims[0], kernel.dims[1], kernel.dims[2], kernel.dims[3],
                      static_cast<float>(settings_of(kernel).model.logits_soft_cap)};
  if (logits.vocabulary > logits.columns) refuse(kernel, "more vocabulary than columns");
  return logits;
}

// cap tanh(x / cap), and its derivative, of the capped value; 1 where nothing is capped.
__device__ __forceinline__ float soft_capped(float x, float cap) { return cap * tanhf(x / cap); }
__device__ __forceinline__ float cap_slope(float capped, float cap) {
  const float t = cap > 0 ? capped / cap : 0.0F;
  return 1 - t * t;
}

// body(at) over the first `count` columns of a row, which the block's threads divide. A row whose vocabulary ends within
// an eight of its threads' vectors has its last ones apart.
template <bool kVectors, class Body>
__device__ __forceinline__ void over_columns(Index count, const Body& body) {
  const Index whole = kVectors ? count / kEight * kEight : count;
  for (Index c = 0; c * kEight * kThreads < whole; ++c) {
    const Eight<kVectors> at(c, static_cast<int>(threadIdx.x), kThreads, whole);
    if (at.any()) body(at);
  }
  if constexpr (kVectors) {
    const Eight<false> rest(whole + threadIdx.x, count);
    if (threadIdx.x < kEight && rest.any()) body(rest);
  }
}

// A block for each token.
template <bool kVectors>
__global__ void __launch_bounds__(kThreads) maximum_of_row(Logits logits, Reals values, float* maxima) {
  auto* slots = reinterpret_cast<float*>(shared_bytes());
  const Index offset = blockIdx.x * logits.columns;
  float most = __int_as_float(static_cast<int>(0xff800000U));  // -infinity
  over_columns<kVectors>(logits.vocabulary, [&](const auto& at) {
    float row[kEight];
    read(values, offset, at, row);
    if (logits.cap > 0) {
      ZEROPLAN_UNROLL
      for (int i = 0; i < kEight; ++i) row[i] = soft_capped(row[i], logits.cap);
      write(values, offset, at, row);
      read(values, offset, at, row);  // as they were rounded
    }
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) most = at.has(i) ? fmaxf(most, row[i]) : most;
  });
  most = block_maximum(most, slots);
  if (threadIdx.x == 0) maxima[blockIdx.x] = most;
}

template <bool kVectors>
__global__ void __launch_bounds__(kThreads)
    exponents_of_row(Logits logits, Reals values, const std::int32_t* targets, const float* maxima,
                     float* sums) {
  auto* slots = reinterpret_cast<float*>(shared_bytes());
  const Index token = blockIdx.x;
  const Index offset = token * logits.columns;
  const std::int32_t target = targets[token];
  if (target < 0) {  // the whole block
    if (threadIdx.x < 2) sums[2 * token + threadIdx.x] = 0;
    return;
  }
  const float maximum = maxima[token];
  float sum = 0;
  over_columns<kVectors>(logits.vocabulary, [&](const auto& at) {
    float row[kEight];
    read(values, offset, at, row);
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) sum += at.has(i) ? expf(row[i] - maximum) : 0.0F;
  });
  sum = block_sum(sum, slots);
  if (threadIdx.x != 0) return;
  const Index column = logits.column(target);
  sums[2 * token] = sum;
  sums[2 * token + 1] = column >= 0 ? load_real(values, offset + column) : 0.0F;
}

// One block: the tokens' losses in fp64, each thread's and then the threads'.
__global__ void __launch_bounds__(kLossThreads)
    sum_losses(Index tokens, double tokens_per_step, const float* maxima, const float* sums, float* scalars) {
  auto* slots = reinterpret_cast<double*>(shared_bytes());
  double total = 0;
  for (Index token = threadIdx.x; token < tokens; token += kLossThreads) {
    const float sum = sums[2 * token];
    if (sum == 0) continue;  // ignored: any other sum is at least 1
    total += static_cast<double>(maxima[token]) + static_cast<double>(logf(sum)) -
             static_cast<double>(sums[2 * token + 1]);
  }
  slots[threadIdx.x] = total;
  for (int half = kLossThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half)
      slots[threadIdx.x] += slots[static_cast<int>(threadIdx.x) + half];
  }
  if (threadIdx.x == 0)
    scalars[static_cast<int>(Scalar::loss)] += static_cast<float>(slots[0] / tokens_per_step);
}

template <bool kVectors>
__global__ void __launch_bounds__(kThreads)
    logit_gradients(Logits logits, float tokens_per_step, Reals values, const std::int32_t* targets,
                    const float* maxima, const float* sums, const float* scalars, Reals gradient) {
  const Index token = blockIdx.x;
  const Index offset = token * logits.columns;
  const std::int32_t target = targets[token];
  const Index count = target < 0 ? 0 : logits.vocabulary;
  const Index column = logits.column(target);
  const float maximum = maxima[token];
  const float factor = scalars[static_cast<int>(Scalar::loss_scale)] / tokens_per_step;
  const float share = factor / sums[2 * token];
  over_columns<kVectors>(logits.columns, [&](const auto& at) {
    float row[kEight] = {};
    if (at.first < count) read(values, offset, at, row);
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) {
      const float slope = cap_slope(row[i], logits.cap);
      float out = expf(row[i] - maximum) * share * slope;
      if (at[i] == column) out -= slope * factor;
      row[i] = at[i] < count ? out : 0.0F;
    }
    write(gradient, offset, at, row);
  });
}

LaunchShape rows_shape(const Logits& logits) {
  return {dim3(static_cast<unsigned>(logits.tokens)), dim3(kThreads), kSlots};
}

bool takes_vectors(const Logits& logits, const Tensor& tensor) {
  return logits.columns % kEight == 0 && is_aligned(tensor);
}

template <class T>
T* data(const Tensor& tensor) {
  return reinterpret_cast<T*>(tensor.data);
}

}  // namespace

void cross_entropy_maximum(const Kernel& kernel, const Launcher& launcher) {
  const Logits logits = logits_of(kernel);
  const Tensor& values = kernel.operands[0];
  with_vectors(takes_vectors(logits, values), [&](auto vectors) {
    launch<maximum_of_row<vectors()>>(launcher.stream, rows_shape(logits), OperandRanges(kernel), logits,
                                      reals(values), data<float>(kernel.operands[1]));
  });
}

void cross_entropy_exponent(const Kernel& kernel, const Launcher& launcher) {
  const Logits logits = logits_of(kernel);
  const Tensor& values = kernel.operands[0];
  with_vectors(takes_vectors(logits, values), [&](auto vectors) {
    launch<exponents_of_row<vectors()>>(launcher.stream, rows_shape(logits), OperandRanges(kernel), logits,
                                        reals(values), data<const std::int32_t>(kernel.operands[1]),
                                        data<const float>(kernel.operands[2]),
                                        data<float>(kernel.operands[3]));
  });
}

void cross_entropy_loss(const Kernel& kernel, const Launcher& launcher) {
  const LaunchShape shape{dim3(1), dim3(kLossThreads), sizeof(double) * kLossThreads};
  launch<sum_losses>(launcher.stream, shape, OperandRanges(kernel), kernel.dims[0],
                     static_cast<double>(settings_of(kernel).tokens_per_step),
                     data<const float>(kernel.operands[0]), data<const float>(kernel.operands[1]),
                     data<float>(kernel.operands[2]));
}

void cross_entropy_backward(const Kernel& kernel, const Launcher& launcher) {
  const Logits logits = logits_of(kernel);
  const Tensor& values = kernel.operands[0];
  const Tensor& gradient = kernel.operands[5];
  with_vectors(takes_vectors(logits, values) && is_aligned(gradient), [&](auto vectors) {
    launch<logit_gradients<vectors()>>(
        launcher.stream, rows_shape(logits), OperandRanges(kernel), logits,
        static_cast<float>(settings_of(kernel).tokens_per_step), reals(values),
        data<const std::int32_t>(kernel.operands[1]), data<const float>(kernel.operands[2]),
        data<const float>(kernel.operands[3]), data<const float>(kernel.operands[4]), reals(gradient));
  });
}

}  // namespace zeroplan::executor::cuda
