#pragma once

#include "executor/host_device.hpp"

// Activations and their slopes by the sigmoid s of what their comments say; each device has a sigmoid of its own. They are
// always inline, as the CPU's loops are compiled for several instruction sets.
namespace zeroplan::executor {

#define ZEROPLAN_ACTIVATION [[gnu::always_inline]] ZEROPLAN_HOST_DEVICE inline

// The tanh form of GELU, x s: s of 2 sqrt(2 / pi) (x + 0.044715 x^3).
ZEROPLAN_ACTIVATION float gelu_tanh_argument(float x) { return 1.59576912F * (x + 0.044715F * x * x * x); }
ZEROPLAN_ACTIVATION float gelu_tanh_slope(float x, float s) {
  return s + x * s * (1.0F - s) * 1.59576912F * (1.0F + 0.134145F * x * x);
}

// SiLU, x s: s of x.
ZEROPLAN_ACTIVATION float silu_slope(float x, float s) { return s * (1.0F + x * (1.0F - s)); }

ZEROPLAN_ACTIVATION float relu(float x) { return x < 0 ? 0.0F : x; }
ZEROPLAN_ACTIVATION float relu_slope(float x) { return x > 0 ? 1.0F : 0.0F; }

#undef ZEROPLAN_ACTIVATION

}  // namespace zeroplan::executor
