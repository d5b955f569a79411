#include <algorithm>
#include <cmath>
#include <limits>

#include "executor/device/cpu/kernels.hpp"
#include "executor/device/cpu/operands.hpp"
#include "executor/device/cpu/wide.hpp"
#include "executor/norm_parts.hpp"
#include "executor/step_scalars.hpp"

namespace zeroplan::executor::cpu {

using program::Scalar;

namespace {

// Of elements [begin, end); not finite when one of them is not. Over blocks of a fixed size, then over the
// blocks.
double sum_of_squares(const Tensor& tensor, Elements begin, Elements end, Workers& workers) {
  const Elements elements = std::max<Elements>(0, end - begin);
  const std::int64_t blocks = div_ceil(elements, kBlockElements);
  const Scratch::Frame frame(workers.shared());
  double* sums = workers.shared().doubles(blocks);
  over_blocks(workers, elements, [&](Elements offset, Elements count, Scratch& scratch) {
    const float* values = read(tensor, begin + offset, count, scratch);
    sums[offset / kBlockElements] = wide([=]() ZEROPLAN_INLINE {
      double sum = 0;
      ZEROPLAN_SIMD_SUM(sum)
      for (Elements i = 0; i < count; ++i)
        sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
      return sum;
    });
  });
  double total = 0;
  for (std::int64_t block = 0; block < blocks; ++block) total += sums[block];
  return total;
}

constexpr float kSmallestScale = 1, kLargestScale = 16777216;

}  // namespace

void gradient_norm(const Kernel& kernel, Workers& workers) {
  const Elements elements = kernel.dims[0];
  const Elements distinct = std::min(kernel.dims[1], elements);
  const Tensor& gradient = kernel.operands[0];
  const Tensor& scalars = kernel.operands[1];
  const double scale = scalar(scalars, Scalar::loss_scale);
  const double own = sum_of_squares(gradient, 0, distinct, workers);
  const double replicated = sum_of_squares(gradient, distinct, elements, workers);
  const double counted = (own + (kernel.counts_replicated ? replicated : 0)) / (scale * scale);
  if (std::isfinite(own + replicated) && counted <= std::numeric_limits<float>::max()) {
    float* parts = &scalar(scalars, Scalar::norm_parts);
    const NormParts sum = norm_parts(squared_norm(parts) + counted);
    std::copy(sum.begin(), sum.end(), parts);
  } else {
    scalar(scalars, Scalar::overflow) += 1;
  }
}

void gradient_to_fp32(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  const Elements begin = kernel.iteration * kernel.dims[1];
  const Elements count = std::clamp<Elements>(kernel.dims[0] - begin, 0, kernel.dims[1]);
  const Tensor& gradient = kernel.operands[0];
  const Tensor& scalars = kernel.operands[1];
  const Tensor& out = kernel.operands[2];
  const float norm = std::sqrt(scalar(scalars, Scalar::squared_norm));
  float factor = 1.0F / scalar(scalars, kGradientScale);
  if (settings.clip_norm > 0) factor *= std::min(1.0F, settings.clip_norm / (norm + 1e-6F));
  const bool skip = scalar(scalars, Scalar::overflow) > 0;
  over_blocks(workers, count, [&](Elements offset, Elements part, Scratch& scratch) {
    float* to = begin_write(out, offset, part, scratch);
    if (skip) {
      std::fill_n(to, part, std::numeric_limits<float>::quiet_NaN());
    } else {
      const float* from = read(gradient, begin + offset, part, scratch);
      wide([=]() ZEROPLAN_INLINE {
        ZEROPLAN_SIMD
        for (Elements i = 0; i < part; ++i) to[i] = from[i] * factor;
      });
    }
    finish_write(out, offset, part, to);
  });
}

void scale_update(const Kernel& kernel, const StepSettings& settings) {
  const Tensor& scalars = kernel.operands[0];
  float& scale = scalar(scalars, Scalar::loss_scale);
  float& good_steps = scalar(scalars, Scalar::good_steps);
  scalar(scalars, kGradientScale) = scale;
  scalar(scalars, Scalar::squared_norm) =
      static_cast<float>(squared_norm(&scalar(scalars, Scalar::norm_parts)));
  scalar(scalars, Scalar::steps) += 1;
  if (scalar(scalars, Scalar::overflow) > 0) {
    good_steps = 0;
    if (settings.dynamic_loss_scale) scale = std::max(kSmallestScale, scale / 2);
    return;
  }
  good_steps += 1;
  if (settings.dynamic_loss_scale && good_steps >= static_cast<float>(settings.scale_window)) {
    scale = std::min(kLargestScale, scale * 2);
    good_steps = 0;
  }
}

}  // namespace zeroplan::executor::cpu
