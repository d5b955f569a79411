#include <cmath>

#include "executor/device/cpu/kernels.hpp"
#include "executor/device/cpu/operands.hpp"
#include "executor/device/cpu/wide.hpp"

// Rotary position embedding (arXiv 2104.09864, Section 3.4): the pair (a, b) of a head at position p becomes
// (a cos t - b sin t, b cos t + a sin t) with t = p rotary_base^(-2 i / head_dim). Backward turns by -t.
namespace zeroplan::executor::cpu {

namespace {

void turn(float* head, const float* cosines, const float* sines, Elements half) {
  wide([=]() ZEROPLAN_INLINE {
    ZEROPLAN_SIMD
    for (Elements i = 0; i < half; ++i) {
      const float a = head[i];
      const float b = head[half + i];
      head[i] = a * cosines[i] - b * sines[i];
      head[half + i] = b * cosines[i] + a * sines[i];
    }
  });
}

void rotate(const Kernel& kernel, const StepSettings& settings, Workers& workers, double direction) {
  const std::int64_t tokens = kernel.dims[0];
  const std::int64_t heads = kernel.dims[1];
  const Elements head_dim = kernel.dims[2];
  const std::int64_t sequence = kernel.extra;
  if (sequence == 0) refuse(kernel, "extra must be the sequence's length: positions depend on it");
  if (head_dim % 2 != 0) refuse(kernel, "heads must have an even number of elements");
  if (tokens == 0) return;
  const Elements turned = heads * head_dim;
  const Tensor& x = real_operand(kernel, 0, tokens * turned);
  const Elements stride = x.elements / tokens;  // the turned heads come first in a token's row
  const Elements half = head_dim / 2;

  over_rows(workers, std::min(sequence, tokens), turned,
            [&](std::int64_t first, std::int64_t last, Scratch& scratch) {
              float* cosines = scratch.floats(half);
              float* sines = scratch.floats(half);
              for (std::int64_t position = first; position < last; ++position) {
                for (Elements i = 0; i < half; ++i) {
                  const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
                  const double angle = static_cast<double>(position) *
                                       std::pow(static_cast<double>(settings.rotary_base), exponent);
                  cosines[i] = static_cast<float>(std::cos(angle));
                  sines[i] = static_cast<float>(direction * std::sin(angle));
                }
                for (std::int64_t token = position; token < tokens; token += sequence) {
                  const Scratch::Frame frame(scratch);
                  const Elements offset = token * stride;
                  float* row = begin_update(x, offset, turned, scratch);
                  for (std::int64_t head = 0; head < heads; ++head)
                    turn(row + head * head_dim, cosines, sines, half);
                  finish_write(x, offset, turned, row);
                }
              }
            });
}

}  // namespace

void rotary_forward(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  rotate(kernel, settings, workers, 1);
}

void rotary_backward(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  rotate(kernel, settings, workers, -1);
}

}  // namespace zeroplan::executor::cpu
