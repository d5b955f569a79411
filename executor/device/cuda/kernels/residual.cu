#include "executor/device/cuda/checks.hpp"
#include "executor/device/cuda/kernels.hpp"
#include "executor/device/cuda/kernels/dropout.cuh"

namespace zeroplan::executor::cuda {

namespace {

// A block has a tile of a token's row. With a mask, what the branch brings is dropped by it on the way.
template <bool kVectors>
__global__ void __launch_bounds__(kFlatThreads)
    add_residual(Tiles tiles, bool aligned_bias, Reals branch, Reals bias, Reals residual, Reals out,
                 std::uint8_t* mask, Dropout dropout, const float* scalars) {
  const Index offset = tiles.row() * tiles.width;
  const auto at = tiles.template at<kVectors>();
  const auto fetched_branch = fetch(branch, offset, at);
  const auto fetched_residual = fetch(residual, offset, at);
  float sum[kEight];
  float before[kEight];
  float shift[kEight] = {};
  if (bias.data != nullptr) read_parameters(bias, aligned_bias, 0, at, shift);
  unpack(fetched_branch, branch, sum);
  unpack(fetched_residual, residual, before);
  ZEROPLAN_UNROLL
  for (int i = 0; i < kEight; ++i) sum[i] += shift[i];
  if (mask != nullptr) {
    const unsigned kept = draw(dropout, step_of(scalars), offset, at);
    drop(kept, dropout.scale(), sum);
    write_mask(mask, offset, at, kept);
  }
  ZEROPLAN_UNROLL
  for (int i = 0; i < kEight; ++i) sum[i] += before[i];
  write(out, offset, at, sum);
}

}  // namespace

void residual_add(const Kernel& kernel, const Launcher& launcher) {
  const Elements hidden = kernel.dims[1];
  const Tensor& branch = kernel.operands[0];
  const Tensor& bias = kernel.operands[1];
  const Tensor& residual = kernel.operands[2];
  const Tensor& mask = kernel.operands[3];
  const Tensor& out = kernel.operands[4];
  if (mask && !kernel.scalars) refuse(kernel, "the scalars with the step's number are missing");
  const Tiles tiles = tiles_of(hidden);
  with_vectors(hidden % kEight == 0 && are_aligned(branch, residual, out, mask), [&](auto vectors) {
    launch<add_residual<vectors()>>(launcher.stream, shape_of(tiles, kernel.dims[0]), OperandRanges(kernel),
                                    tiles, is_aligned(bias), reals(branch), reals(bias), reals(residual),
                                    reals(out), reinterpret_cast<std::uint8_t*>(mask.data),
                                    Dropout(kernel.dropout_key, settings_of(kernel).dropout),
                                    reinterpret_cast<const float*>(kernel.scalars.data));
  });
}

}  // namespace zeroplan::executor::cuda
