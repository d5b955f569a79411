#include <algorithm>
#include <limits>

#include "executor/device/cpu/kernels.hpp"
#include "executor/device/cpu/operands.hpp"
#include "executor/device/cpu/wide.hpp"
#include "executor/device/step_rules.hpp"

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

}  // namespace

void gradient_norm(const Kernel& kernel, Workers& workers) {
  const Elements elements = kernel.dims[0];
  const Elements distinct = std::min(kernel.dims[1], elements);
  const Tensor& gradient = kernel.operands[0];
  const Tensor& scalars = kernel.operands[1];
  const double own = sum_of_squares(gradient, 0, distinct, workers);
  const double replicated = sum_of_squares(gradient, distinct, elements, workers);
  count_norm(scalars.as<float>().data(), own, replicated, kernel.counts_replicated);
}

void gradient_to_fp32(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  const Elements begin = kernel.iteration * kernel.dims[1];
  const Elements count = std::clamp<Elements>(kernel.dims[0] - begin, 0, kernel.dims[1]);
  const Tensor& gradient = kernel.operands[0];
  const Tensor& scalars = kernel.operands[1];
  const Tensor& out = kernel.operands[2];
  const float factor = gradient_factor(scalars.as<float>().data(), settings.clip_norm);
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
  update_scale(kernel.operands[0].as<float>().data(), settings.dynamic_loss_scale, settings.scale_window);
}

}  // namespace zeroplan::executor::cpu
