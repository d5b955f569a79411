#include "executor/device/activation_rules.hpp"
#include "executor/device/cuda/checks.hpp"
#include "executor/device/cuda/kernels.hpp"
#include "executor/device/cuda/kernels/reals.cuh"

namespace zeroplan::executor::cuda {

using program::ActivationKind;

namespace {

// ---- y = act(x) and its slope ----

// 0 for -infinity, 1 for infinity, and NaN for NaN.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0F, 1.0F + expf(-x)); }

// x P(x), P the normal distribution's function; its slope is P(x) + x p(x), p the density.
struct Gelu {
  __device__ static float distribution(float x) { return 0.5F * erfcf(-0.707106781F * x); }
  __device__ static float value(float x) { return x * distribution(x); }
  __device__ static float slope(float x) { return distribution(x) + x * expf(-0.5F * x * x) * 0.398942280F; }
};

struct GeluTanh {
  __device__ static float value(float x) { return x * sigmoid(gelu_tanh_argument(x)); }
  __device__ static float slope(float x) { return gelu_tanh_slope(x, sigmoid(gelu_tanh_argument(x))); }
};

struct Silu {
  __device__ static float value(float x) { return x * sigmoid(x); }
  __device__ static float slope(float x) { return silu_slope(x, sigmoid(x)); }
};

struct Relu {
  __device__ static float value(float x) { return relu(x); }
  __device__ static float slope(float x) { return relu_slope(x); }
};

// ---- without a gate: one vector ----

template <class Function, bool kVectors>
__global__ void __launch_bounds__(kFlatThreads) activate(Reals before, Reals after, Index elements) {
  over_flat<kVectors>(elements, [&](const auto& at) {
    float values[kEight];
    read(before, 0, at, values);
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) values[i] = Function::value(values[i]);
    write(after, 0, at, values);
  });
}

template <class Function, bool kVectors>
__global__ void __launch_bounds__(kFlatThreads)
    activate_backward(Reals dy, Reals before, Reals gradient, Index elements) {
  over_flat<kVectors>(elements, [&](const auto& at) {
    const auto fetched_up = fetch(dy, 0, at);
    const auto fetched = fetch(before, 0, at);
    float up[kEight];
    float values[kEight];
    unpack(fetched_up, dy, up);
    unpack(fetched, before, values);
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) values[i] = up[i] * Function::slope(values[i]);
    write(gradient, 0, at, values);
  });
}

// ---- with a gate: a row of the pre-activation is {up, gate}; a block has a tile of a row ----

template <class Function, bool kVectors>
__global__ void __launch_bounds__(kFlatThreads) activate_gated(Tiles gated, Reals before, Reals after) {
  const Index row = gated.row();
  const auto at = gated.template at<kVectors>();
  const auto fetched_up = fetch(before, row * 2 * gated.width, at);
  const auto fetched_gate = fetch(before, (row * 2 + 1) * gated.width, at);
  float up[kEight];
  float gate[kEight];
  unpack(fetched_up, before, up);
  unpack(fetched_gate, before, gate);
  ZEROPLAN_UNROLL
  for (int i = 0; i < kEight; ++i) up[i] *= Function::value(gate[i]);
  write(after, row * gated.width, at, up);
}

template <class Function, bool kVectors>
__global__ void __launch_bounds__(kFlatThreads)
    activate_gated_backward(Tiles gated, Reals dy, Reals before, Reals gradient) {
  const Index row = gated.row();
  const auto at = gated.template at<kVectors>();
  const Index of_up = row * 2 * gated.width;
  const Index of_gate = of_up + gated.width;
  const auto fetched_dy = fetch(dy, row * gated.width, at);
  const auto fetched_up = fetch(before, of_up, at);
  const auto fetched_gate = fetch(before, of_gate, at);
  float from_above[kEight];
  float up[kEight];
  float gate[kEight];
  unpack(fetched_dy, dy, from_above);
  unpack(fetched_up, before, up);
  unpack(fetched_gate, before, gate);
  ZEROPLAN_UNROLL
  for (int i = 0; i < kEight; ++i) {
    const float own = up[i];
    up[i] = from_above[i] * Function::value(gate[i]);
    gate[i] = from_above[i] * own * Function::slope(gate[i]);
  }
  write(gradient, of_up, at, up);
  write(gradient, of_gate, at, gate);
}

// body(function) with the kernel's activation.
template <class Body>
void with_activation(const Kernel& kernel, const Body& body) {
  switch (static_cast<ActivationKind>(kernel.extra)) {
    case ActivationKind::gelu:
    case ActivationKind::gated_gelu:
      return body(Gelu{});
    case ActivationKind::gelu_tanh:
    case ActivationKind::gated_gelu_tanh:
      return body(GeluTanh{});
    case ActivationKind::silu:
    case ActivationKind::gated_silu:
      return body(Silu{});
    case ActivationKind::relu:
    case ActivationKind::gated_relu:
      return body(Relu{});
  }
  refuse(kernel, "unknown activation");
}

bool is_gated(const Kernel& kernel) { return program::is_gated(static_cast<ActivationKind>(kernel.extra)); }

}  // namespace

void activation_forward(const Kernel& kernel, const Launcher& launcher) {
  const Tensor& before = kernel.operands[0];
  const Tensor& after = kernel.operands[1];
  const bool gated = is_gated(kernel);
  const bool vectors = are_aligned(before, after) && (!gated || kernel.dims[1] % kEight == 0);
  with_activation(kernel, [&]<class Function>(Function) {
    with_vectors(vectors, [&](auto chosen) {
      if (gated) {
        const Tiles tiles = tiles_of(kernel.dims[1]);
        launch<activate_gated<Function, chosen()>>(launcher.stream, shape_of(tiles, kernel.dims[0]),
                                                   OperandRanges(kernel), tiles, reals(before), reals(after));
      } else {
        const Elements elements = kernel.dims[0] * kernel.dims[1];
        launch<activate<Function, chosen()>>(launcher.stream, flat_shape(elements), OperandRanges(kernel),
                                             reals(before), reals(after), elements);
      }
    });
  });
}

void activation_backward(const Kernel& kernel, const Launcher& launcher) {
  const Tensor& dy = kernel.operands[0];
  const Tensor& before = kernel.operands[1];
  const Tensor& gradient = kernel.operands[2];
  const bool gated = is_gated(kernel);
  const bool vectors = are_aligned(dy, before, gradient) && (!gated || kernel.dims[1] % kEight == 0);
  with_activation(kernel, [&]<class Function>(Function) {
    with_vectors(vectors, [&](auto chosen) {
      if (gated) {
        const Tiles tiles = tiles_of(kernel.dims[1]);
        launch<activate_gated_backward<Function, chosen()>>(launcher.stream, shape_of(tiles, kernel.dims[0]),
                                                            OperandRanges(kernel), tiles, reals(dy),
                                                            reals(before), reals(gradient));
      } else {
        const Elements elements = kernel.dims[0] * kernel.dims[1];
        launch<activate_backward<Function, chosen()>>(launcher.stream, flat_shape(elements),
                                                      OperandRanges(kernel), reals(dy), reals(before),
                                                      reals(gradient), elements);
      }
    });
  });
}

}  // namespace zeroplan::executor::cuda
