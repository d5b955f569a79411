#include <cmath>

#include "executor/device/cpu/kernels.hpp"
#include "executor/device/cpu/operands.hpp"
#include "executor/device/cpu/wide.hpp"

// Rotary position embedding (arXiv 2104.09864, Section 3.4): the pair (a, b) of a head at position p becomes
// (a cos t - b sin t, b cos t + a sin t) with t = p x the model's frequency i. Backward turns by -t. Of a head,
// only the first rotary_dims elements may be turned; the others stay.
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
  const program::ModelConstants& model = settings.model;
  const Elements dims = model.rotary_dims > 0 ? model.rotary_dims : head_dim;
  if (dims % 2 != 0 || dims > head_dim) refuse(kernel, "an even number of a head's elements is turned");
  if (tokens == 0 || !model.turns(kernel.layer)) return;
  const program::RotaryFrequencies& frequencies = model.rotary_of(kernel.layer);
  const Elements turned = heads * head_dim;
  const Tensor& x = kernel.operands[0];
  const Elements stride = x.elements / tokens;  // the turned heads come first in a token's row
  const Elements half = dims / 2;

  over_rows(workers, std::min(sequence, tokens), turned,
            [&](std::int64_t first, std::int64_t last, Scratch& scratch) {
              float* cosines = scratch.floats(half);
              float* sines = scratch.floats(half);
              for (std::int64_t position = first; position < last; ++position) {
                for (Elements i = 0; i < half; ++i) {
                  const double angle = static_cast<double>(position) * frequencies.at(i, dims);
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
