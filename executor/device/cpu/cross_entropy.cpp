#include <cmath>
#include <limits>

#include "executor/device/cpu/functions.hpp"
#include "executor/device/cpu/kernels.hpp"
#include "executor/device/cpu/operands.hpp"

// Cross-entropy over a vocabulary that tensor-parallel ranks divide (Megatron-LM, arXiv 1909.08053, Section
// 3): per token loss = maximum + ln(sum of e^(logit - maximum)) - target's logit, of which maximum and the
// pair of sums cross ranks.
namespace zeroplan::executor::cpu {

using program::Scalar;

namespace {

struct Logits {
  std::int64_t tokens = 0;
  Elements columns = 0;  // of a row, padding included
  std::int64_t first_column = 0;
  Elements vocabulary = 0;  // columns that are no padding
  Tensor logits;

  // The target's column here, or -1.
  std::int64_t column(std::int32_t target) const {
    const std::int64_t local = target - first_column;
    return target >= 0 && local >= 0 && local < vocabulary ? local : -1;
  }
};

Logits logits_operand(const Kernel& kernel) {
  const auto [tokens, columns, first_column, vocabulary] = kernel.dims;
  if (vocabulary > columns) refuse(kernel, "more vocabulary than columns");
  return {tokens, columns, first_column, vocabulary, kernel.operands[0]};
}

void cap_row(const Tensor& logits, Elements offset, Elements count, float cap, Scratch& scratch) {
  float* row = begin_update(logits, offset, count, scratch);
  wide([=]() ZEROPLAN_INLINE {
    ZEROPLAN_SIMD
    for (Elements i = 0; i < count; ++i) row[i] = soft_capped(row[i], cap);
  });
  finish_write(logits, offset, count, row);
}

}  // namespace

void cross_entropy_maximum(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  const Logits logits = logits_operand(kernel);
  float* maxima = kernel.operands[1].as<float>().data();
  const auto cap = static_cast<float>(settings.model.logits_soft_cap);
  over_rows(workers, logits.tokens, logits.columns,
            [&](std::int64_t first, std::int64_t last, Scratch& scratch) {
              for (std::int64_t token = first; token < last; ++token) {
                const Scratch::Frame frame(scratch);
                const Elements count = logits.vocabulary;
                if (cap > 0) cap_row(logits.logits, token * logits.columns, count, cap, scratch);
                const float* row = read(logits.logits, token * logits.columns, count, scratch);
                maxima[token] = wide([=]() ZEROPLAN_INLINE { return largest(row, count); });
              }
            });
}

void cross_entropy_exponent(const Kernel& kernel, Workers& workers) {
  const Logits logits = logits_operand(kernel);
  const std::int32_t* targets = kernel.operands[1].as<std::int32_t>().data();
  const float* maxima = kernel.operands[2].as<float>().data();
  float* sums = kernel.operands[3].as<float>().data();
  over_rows(workers, logits.tokens, logits.columns,
            [&](std::int64_t first, std::int64_t last, Scratch& scratch) {
              for (std::int64_t token = first; token < last; ++token) {
                const Scratch::Frame frame(scratch);
                if (targets[token] < 0) {
                  sums[2 * token] = 0;
                  sums[2 * token + 1] = 0;
                  continue;
                }
                const Elements count = logits.vocabulary;
                const float* row = read(logits.logits, token * logits.columns, count, scratch);
                const float maximum = maxima[token];
                sums[2 * token] = wide([=]() ZEROPLAN_INLINE {
                  float sum = 0;
                  ZEROPLAN_SIMD_SUM(sum)
                  for (Elements i = 0; i < count; ++i) sum += exponential(row[i] - maximum);
                  return sum;
                });
                const std::int64_t column = logits.column(targets[token]);
                sums[2 * token + 1] = column >= 0 ? row[column] : 0.0F;
              }
            });
}

void cross_entropy_loss(const Kernel& kernel, const StepSettings& settings) {
  const std::int64_t tokens = kernel.dims[0];
  const float* maxima = kernel.operands[0].as<float>().data();
  const float* sums = kernel.operands[1].as<float>().data();
  const Tensor& scalars = kernel.operands[2];
  double total = 0;
  for (std::int64_t token = 0; token < tokens; ++token) {
    const double sum = sums[2 * token];
    if (sum == 0) continue;  // ignored: any other sum is at least 1
    total += maxima[token] + std::log(sum) - sums[2 * token + 1];
  }
  scalar(scalars, Scalar::loss) += static_cast<float>(total / static_cast<double>(settings.tokens_per_step));
}

void cross_entropy_backward(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  const Logits logits = logits_operand(kernel);
  const std::int32_t* targets = kernel.operands[1].as<std::int32_t>().data();
  const float* maxima = kernel.operands[2].as<float>().data();
  const float* sums = kernel.operands[3].as<float>().data();
  const Tensor& scalars = kernel.operands[4];
  const Tensor& gradient = kernel.operands[5];
  const float factor = scalar(scalars, Scalar::loss_scale) / static_cast<float>(settings.tokens_per_step);
  const auto cap = static_cast<float>(settings.model.logits_soft_cap);
  over_rows(workers, logits.tokens, logits.columns,
            [&](std::int64_t first, std::int64_t last, Scratch& scratch) {
              for (std::int64_t token = first; token < last; ++token) {
                const Scratch::Frame frame(scratch);
                const Elements offset = token * logits.columns;
                const Elements count = targets[token] < 0 ? 0 : logits.vocabulary;
                const float* row = read(logits.logits, offset, count, scratch);
                float* out = begin_write(gradient, offset, logits.columns, scratch);
                const float maximum = maxima[token];
                const float share = factor / sums[2 * token];
                const std::int64_t column = logits.column(targets[token]);
                // The gradient may be written over the logits, so what is needed of the target's comes first.
                const float target = column >= 0 ? cap_slope(row[column], cap) * factor : 0;
                wide([=]() ZEROPLAN_INLINE {
                  ZEROPLAN_SIMD
                  for (Elements i = 0; i < count; ++i) {
                    out[i] = exponential(row[i] - maximum) * share * cap_slope(row[i], cap);
                  }
                });
                std::fill(out + count, out + logits.columns, 0.0F);
                if (column >= 0) out[column] -= target;
                finish_write(gradient, offset, logits.columns, out);
              }
            });
}

}  // namespace zeroplan::executor::cpu
