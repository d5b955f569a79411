#include <algorithm>
#include <cmath>

#include "executor/device/cpu/kernels.hpp"
#include "executor/device/cpu/operands.hpp"
#include "executor/device/cpu/wide.hpp"

// LayerNorm (arXiv 1607.06450): y = (x - mean) / deviation * w + b over the elements of a row; RMSNorm (arXiv
// 1910.07467): y = x / root-mean-square * w. With n = (x - mean) / deviation and g = dy w:
//   dx = (g - mean(g) - n mean(g n)) / deviation,   dw += sum over rows of dy n,   db += sum over rows of dy
// where RMSNorm has mean 0 and leaves out mean(g).
namespace zeroplan::executor::cpu {

namespace {

struct Norm {
  std::int64_t rows = 0;
  Elements width = 0;
  Tensor x, parameters, statistics;
  bool centred = false;  // LayerNorm
  bool has_bias = false;
  // Rows that are heads of tokens: so many of a token, the first of them at this element of it. 0: rows follow
  // one another.
  std::int64_t parts = 0;
  Elements first = 0;

  // Where a row of `tensor` begins.
  Elements offset(const Tensor& tensor, std::int64_t row) const {
    if (parts == 0) return row * width;
    const Elements stride = tensor.elements / (rows / parts);
    return row / parts * stride + first + row % parts * width;
  }
  // Statistics of a token's query heads come before those of its key heads.
  std::int64_t statistic(std::int64_t row) const {
    if (parts == 0) return row;
    const std::int64_t stride = statistics.elements / (rows / parts);
    return row / parts * stride + (first == 0 ? 0 : stride - parts) + row % parts;
  }
};

Norm norm_operands(const Kernel& kernel, std::size_t x, std::size_t parameters, std::size_t statistics) {
  Norm norm;
  norm.rows = kernel.dims[0];
  norm.width = kernel.dims[1];
  norm.x = kernel.operands[x];
  norm.parameters = kernel.operands[parameters];
  norm.statistics = kernel.operands[statistics];
  norm.parts = kernel.dims[2];
  norm.first = kernel.dims[3];
  norm.centred = norm.parts == 0 && norm.statistics.elements >= 2 * norm.rows;
  norm.has_bias = norm.parameters.elements >= 2 * norm.width;
  // A little more is padding of a partition; a row or more is a matrix with longer rows than the norm's.
  if (norm.parts == 0 && norm.x.elements - norm.rows * norm.width >= 2 * norm.width) {
    refuse(kernel, "its rows are longer than the norm is wide");
  }
  if (norm.parts > 0 && norm.rows % norm.parts != 0) refuse(kernel, "every token has as many heads");
  return norm;
}

struct Statistics {
  float mean = 0;
  float scale = 0;  // 1 / deviation or 1 / root-mean-square
};

Statistics statistics_of(const float* x, Elements width, bool centred, float epsilon) {
  const float count = static_cast<float>(width);
  float mean = 0;
  if (centred) {
    mean = wide([=]() ZEROPLAN_INLINE {
             float sum = 0;
             ZEROPLAN_SIMD_SUM(sum)
             for (Elements i = 0; i < width; ++i) sum += x[i];
             return sum;
           }) /
           count;
  }
  const float squares = wide([=]() ZEROPLAN_INLINE {
    float sum = 0;
    ZEROPLAN_SIMD_SUM(sum)
    for (Elements i = 0; i < width; ++i) sum += (x[i] - mean) * (x[i] - mean);
    return sum;
  });
  return {mean, 1.0F / std::sqrt(squares / count + epsilon)};
}

Statistics load_statistics(const Norm& norm, std::int64_t row) {
  const auto values = norm.statistics.as<float>();
  const auto index = static_cast<std::size_t>(norm.statistic(row));
  if (norm.centred) return {values[2 * index], values[2 * index + 1]};
  return {0, values[index]};
}

void store_statistics(const Norm& norm, std::int64_t row, const Statistics& statistics) {
  const auto values = norm.statistics.as<float>();
  const auto index = static_cast<std::size_t>(norm.statistic(row));
  if (norm.centred) {
    values[2 * index] = statistics.mean;
    values[2 * index + 1] = statistics.scale;
  } else {
    values[index] = statistics.scale;
  }
}

// What a row is multiplied with: the weight, and in some models 1 more.
const float* read_weight(const Norm& norm, const StepSettings& settings, Scratch& scratch) {
  const float* weight = read(norm.parameters, 0, norm.width, scratch);
  const auto offset = static_cast<float>(settings.model.norm_weight_offset);
  if (offset == 0) return weight;
  float* sum = scratch.floats(norm.width);
  for (Elements i = 0; i < norm.width; ++i) sum[i] = offset + weight[i];
  return sum;
}

struct Means {
  float gradient = 0;    // of g
  float projection = 0;  // of g n
};

// Adds the row's part of the parameters' gradients to dw and db on the way.
Means row_means(const float* x, const float* dy, const float* weight, Elements width, Statistics statistics,
                float* dw, float* db) {
  const Means sums = wide([=]() ZEROPLAN_INLINE {
    float gradient = 0;
    float projection = 0;
    ZEROPLAN_SIMD_SUM(gradient, projection)
    for (Elements i = 0; i < width; ++i) {
      const float normed = (x[i] - statistics.mean) * statistics.scale;
      const float weighted = dy[i] * weight[i];
      gradient += weighted;
      projection += weighted * normed;
      dw[i] += dy[i] * normed;
      db[i] += dy[i];
    }
    return Means{gradient, projection};
  });
  const float count = static_cast<float>(width);
  return {sums.gradient / count, sums.projection / count};
}

}  // namespace

void norm_forward(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  const Norm norm = norm_operands(kernel, 0, 1, 3);
  const Elements width = norm.width;
  const auto epsilon = static_cast<float>(settings.model.norm_epsilon);
  const Tensor& y = kernel.operands[2];
  over_rows(workers, norm.rows, width, [&](std::int64_t first, std::int64_t last, Scratch& scratch) {
    const float* weight = read_weight(norm, settings, scratch);
    const float* bias = norm.has_bias ? read(norm.parameters, width, width, scratch) : nullptr;
    for (std::int64_t row = first; row < last; ++row) {
      const Scratch::Frame frame(scratch);
      const float* x = read(norm.x, norm.offset(norm.x, row), width, scratch);
      const Statistics statistics = statistics_of(x, width, norm.centred, epsilon);
      store_statistics(norm, row, statistics);
      float* out = begin_write(y, norm.offset(y, row), width, scratch);
      if (bias != nullptr) {
        wide([=]() ZEROPLAN_INLINE {
          ZEROPLAN_SIMD
          for (Elements i = 0; i < width; ++i) {
            out[i] = (x[i] - statistics.mean) * statistics.scale * weight[i] + bias[i];
          }
        });
      } else {
        wide([=]() ZEROPLAN_INLINE {
          ZEROPLAN_SIMD
          for (Elements i = 0; i < width; ++i)
            out[i] = (x[i] - statistics.mean) * statistics.scale * weight[i];
        });
      }
      finish_write(y, norm.offset(y, row), width, out);
    }
  });
}

void norm_backward(const Kernel& kernel, const StepSettings& settings, Workers& workers) {
  const Norm norm = norm_operands(kernel, 1, 2, 3);
  const Elements width = norm.width;
  const Tensor& dy = kernel.operands[0];
  const Tensor& dx = kernel.operands[4];
  const Elements parameters = norm.has_bias ? 2 * width : width;
  const Tensor& gradient = kernel.operands[5];
  const bool overwrite = (kernel.flags & program::kOverwrite) != 0;
  const bool centred = norm.centred;

  // Parameter gradients are summed over a fixed number of ranges of rows, then over the ranges.
  constexpr std::int64_t kRanges = 16;
  const std::int64_t step = std::max<std::int64_t>(1, div_ceil(norm.rows, kRanges));
  const std::int64_t ranges = div_ceil(norm.rows, step);
  const Scratch::Frame shared(workers.shared());
  float* partial = workers.shared().floats(2 * width * std::max<std::int64_t>(1, ranges));
  workers.run(ranges, [&](std::int64_t range, Scratch& scratch) {
    const float* weight = read_weight(norm, settings, scratch);
    float* dw = partial + range * 2 * width;
    float* db = dw + width;
    std::fill_n(dw, 2 * width, 0.0F);
    for (std::int64_t row = range * step; row < std::min(norm.rows, (range + 1) * step); ++row) {
      const Scratch::Frame frame(scratch);
      const Elements offset = norm.offset(dx, row);
      const float* x = read(norm.x, norm.offset(norm.x, row), width, scratch);
      const float* up = read(dy, norm.offset(dy, row), width, scratch);
      const Statistics statistics = load_statistics(norm, row);
      Means means = row_means(x, up, weight, width, statistics, dw, db);
      if (!centred) means.gradient = 0;
      const float* before = overwrite ? nullptr : read(dx, offset, width, scratch);
      float* out = begin_write(dx, offset, width, scratch);
      const auto gradient_of = [=](Elements i) ZEROPLAN_INLINE {
        const float normed = (x[i] - statistics.mean) * statistics.scale;
        return statistics.scale * (up[i] * weight[i] - means.gradient - normed * means.projection);
      };
      if (overwrite) {
        wide([=]() ZEROPLAN_INLINE {
          ZEROPLAN_SIMD
          for (Elements i = 0; i < width; ++i) out[i] = gradient_of(i);
        });
      } else {
        wide([=]() ZEROPLAN_INLINE {
          ZEROPLAN_SIMD
          for (Elements i = 0; i < width; ++i) out[i] = before[i] + gradient_of(i);
        });
      }
      finish_write(dx, offset, width, out);
    }
  });
  for (std::int64_t range = 1; range < ranges; ++range) {
    for (Elements i = 0; i < 2 * width; ++i) partial[i] += partial[range * 2 * width + i];
  }
  if (ranges > 0) add(gradient, 0, parameters, partial, workers.shared());
}

}  // namespace zeroplan::executor::cpu
