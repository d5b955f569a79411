#include "executor/device/cuda/kernels/bias.hpp"
#include "executor/device/cuda/kernels/reals.cuh"

namespace zeroplan::executor::cuda {

namespace {

// A block has a tile of a row.
template <bool kVectors>
__global__ void __launch_bounds__(kFlatThreads)
    add_to_rows(Tiles tiles, bool aligned_bias, Reals bias, Reals y) {
  const Index offset = tiles.row() * tiles.width;
  const auto at = tiles.template at<kVectors>();
  float sum[kEight];
  float shift[kEight];
  read(y, offset, at, sum);
  read_parameters(bias, aligned_bias, 0, at, shift);
  ZEROPLAN_UNROLL
  for (int i = 0; i < kEight; ++i) sum[i] += shift[i];
  write(y, offset, at, sum);
}

}  // namespace

void add_bias(const Kernel& kernel, const Launcher& launcher) {
  const auto [m, n, k, unused] = kernel.dims;
  const Tensor& bias = kernel.operands[2];
  const Tensor& y = kernel.operands[3];
  const Tiles tiles = tiles_of(n);
  with_vectors(n % kEight == 0 && is_aligned(y), [&, rows = m](auto vectors) {
    launch<add_to_rows<vectors()>>(launcher.stream, shape_of(tiles, rows), OperandRanges(kernel), tiles,
                                   is_aligned(bias), reals(bias), reals(y));
  });
}

}  // namespace zeroplan::executor::cuda
