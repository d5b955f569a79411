#pragma once

#include <algorithm>

#include "executor/device/cuda/checks.hpp"
#include "executor/device/cuda/kernels/reals.cuh"

// What the norms' kernels have in common. LayerNorm (arXiv 1607.06450): y = (x - mean) / deviation * w + b over the
// elements of a row; RMSNorm (arXiv 1910.07467): y = x / root-mean-square * w.
namespace zeroplan::executor::cuda {

// Where the rows of a tensor begin. Rows that are heads of tokens: `parts` of a token, the first of them at `first` of
// the token's `stride` elements. parts 0: rows follow one another.
struct NormRows {
  Index width = 0, parts = 0, first = 0, stride = 0;

  __device__ Index operator()(Index row) const {
    return parts == 0 ? row * width : row / parts * stride + first + row % parts * width;
  }
};

struct NormStatistics {
  float mean = 0;
  float scale = 0;  // 1 / deviation or 1 / root-mean-square
};

struct Norm {
  Index rows = 0, width = 0;
  Index parts = 0, first = 0;
  Index statistics_stride = 0;  // of a token, where rows are heads
  bool centred = false;         // LayerNorm
  bool has_bias = false;
  bool aligned_parameters = false;
  float weight_offset = 0;

  NormRows rows_of(const Tensor& tensor) const {
    return {width, parts, first, parts == 0 ? 0 : tensor.elements / std::max<Index>(1, rows / parts)};
  }
  // Whether 16-byte accesses to every row of a tensor are aligned.
  bool takes_vectors(const Tensor& tensor) const {
    const NormRows at = rows_of(tensor);
    return is_aligned(tensor) && width % kEight == 0 && at.first % kEight == 0 && at.stride % kEight == 0;
  }

  // Statistics of a token's query heads come before those of its key heads.
  __device__ Index statistic(Index row) const {
    if (parts == 0) return row;
    return row / parts * statistics_stride + (first == 0 ? 0 : statistics_stride - parts) + row % parts;
  }
  __device__ NormStatistics load(const float* statistics, Index row) const {
    const Index index = statistic(row);
    if (centred) return {statistics[2 * index], statistics[2 * index + 1]};
    return {0, statistics[index]};
  }
  __device__ void store(float* statistics, Index row, const NormStatistics& values) const {
    const Index index = statistic(row);
    if (centred) {
      statistics[2 * index] = values.mean;
      statistics[2 * index + 1] = values.scale;
    } else {
      statistics[index] = values.scale;
    }
  }

  // What a row is multiplied with: the weight, and in some models 1 more.
  template <bool kVectors>
  __device__ __forceinline__ void read_weight(const Reals& parameters, const Eight<kVectors>& at,
                                              float (&to)[kEight]) const {
    read_parameters(parameters, aligned_parameters, 0, at, to);
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) to[i] += weight_offset;
  }
};

inline Norm norm_of(const Kernel& kernel, const Tensor& x, const Tensor& parameters,
                    const Tensor& statistics) {
  Norm norm;
  norm.rows = kernel.dims[0];
  norm.width = kernel.dims[1];
  norm.parts = kernel.dims[2];
  norm.first = kernel.dims[3];
  norm.centred = norm.parts == 0 && statistics.elements >= 2 * norm.rows;
  norm.has_bias = parameters.elements >= 2 * norm.width;
  norm.aligned_parameters = is_aligned(parameters) && norm.width % kEight == 0;
  norm.weight_offset = static_cast<float>(settings_of(kernel).model.norm_weight_offset);
  // A little more is padding of a partition; a row or more is a matrix with longer rows than the norm's.
  if (norm.parts == 0 && x.elements - norm.rows * norm.width >= 2 * norm.width)
    refuse(kernel, "its rows are longer than the norm is wide");
  if (norm.parts > 0) {
    if (norm.rows % norm.parts != 0) refuse(kernel, "every token has as many heads");
    norm.statistics_stride = statistics.elements / std::max<Index>(1, norm.rows / norm.parts);
  }
  return norm;
}

// How many threads a row of a block has.
inline int row_threads(Index width, int chunks, int most) {
  const Index needed = round_up(div_ceil(width, kEight * chunks), kWarpLanes);
  return static_cast<int>(std::clamp<Index>(needed, kWarpLanes, most));
}

}  // namespace zeroplan::executor::cuda
