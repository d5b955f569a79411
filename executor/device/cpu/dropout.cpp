#include "executor/dropout.hpp"

#include <algorithm>

#include "executor/device/cpu/kernels.hpp"
#include "executor/device/cpu/operands.hpp"
#include "executor/device/cpu/wide.hpp"
#include "executor/device/step_rules.hpp"

namespace zeroplan::executor::cpu {

namespace {

// The mask's bytes of elements [begin, begin + count).
void draw(const Kernel& kernel, const StepSettings& settings, Elements begin, Elements count,
          std::uint8_t* mask) {
  if (!kernel.scalars) refuse(kernel, "the scalars with the step's number are missing");
  const Dropout dropout(kernel.mask, settings.dropout);
  const auto step = static_cast<std::uint32_t>(scalar(kernel.scalars, kStepNumber));
  for (Elements i = 0; i < count;) {
    const auto element = static_cast<std::uint64_t>(begin + i);
    const std::uint64_t number = kernel.mask.numbers.of(element);
    unsigned kept = dropout.kept_of_four(number / 4, step) >> (number % 4);
    const std::uint64_t of_four = std::min(4 - number % 4, kernel.mask.numbers.following(element));
    const Elements end = std::min(count, i + static_cast<Elements>(of_four));
    for (; i < end; ++i, kept >>= 1U) mask[i] = static_cast<std::uint8_t>(kept & 1U);
  }
}

// What stays, times `scale`.
void drop(const std::uint8_t* mask, const float* from, float* to, Elements count, float scale) {
  wide([=]() ZEROPLAN_INLINE {
    ZEROPLAN_SIMD
    for (Elements i = 0; i < count; ++i) to[i] = mask[i] != 0 ? from[i] * scale : 0.0F;
  });
}

float scale_of(const StepSettings& settings) { return Dropout({}, settings.dropout).scale(); }

void drop_by_mask(const Tensor& mask, const Tensor& from, const Tensor& to, Elements elements, float scale,
                  Workers& workers) {
  over_blocks(workers, elements, [&](Elements begin, Elements count, Scratch& scratch) {
    const float* values = read(from, begin, count, scratch);
    float* out = begin_write(to, begin, count, scratch);
    drop(mask.as<std::uint8_t>().data() + begin, values, out, count, scale);
    finish_write(to, begin, count, out);
  });
}

}  // namespace

void drop_drawn(const Kernel& kernel, const StepSettings& settings, const Tensor& mask, Elements begin,
                Elements count, const float* from, float* to) {
  std::uint8_t* kept = mask.as<std::uint8_t>().data() + begin;
  draw(kernel, settings, begin, count, kept);
  drop(kept, from, to, count, scale_of(settings));
}

void dropout_forward(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  const Tensor& x = kernel.operands[0];
  const Tensor& y = kernel.operands[2];
  over_blocks(workers, kernel.dims[0], [&](Elements begin, Elements count, Scratch& scratch) {
    const float* values = read(x, begin, count, scratch);
    float* out = begin_write(y, begin, count, scratch);
    drop_drawn(kernel, settings, kernel.operands[1], begin, count, values, out);
    finish_write(y, begin, count, out);
  });
}

void dropout_backward(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  const Tensor& dy = kernel.operands[1];
  drop_by_mask(kernel.operands[0], dy, dy, kernel.dims[0], scale_of(settings), workers);
}

void residual_backward(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  drop_by_mask(kernel.operands[1], kernel.operands[0], kernel.operands[2], kernel.dims[0] * kernel.dims[1],
               scale_of(settings), workers);
}

}  // namespace zeroplan::executor::cpu
