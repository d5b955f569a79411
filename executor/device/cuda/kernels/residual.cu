#include "executor/device/cuda/kernels.hpp"
#include "executor/device/cuda/kernels/norm_row.cuh"
#include "executor/device/cuda/kernels/residual.cuh"

namespace zeroplan::executor::cuda {

namespace {

// A block has a tile of a token's row.
template <bool kVectors>
__global__ void __launch_bounds__(kFlatThreads) add_residual(Tiles tiles, Addition addition) {
  const Index offset = tiles.row() * tiles.width;
  const auto at = tiles.template at<kVectors>();
  float sum[kEight];
  addition.finish(addition.fetch_terms(offset, at), offset, at, sum);
}

// A row that is added is normalised before it leaves the registers.
template <bool kWarps>
__global__ void __launch_bounds__(kNormThreads<kWarps>)
    add_and_normalize(Addition addition, Norm norm, float epsilon, Reals parameters, Reals y,
                      float* statistics) {
  const RowThread<kWarps> own;
  if (own.row >= norm.rows) return;  // a whole warp
  const Index offset = own.row * norm.width;
  const HeldRow<true, kNormChunks> held(
      own.thread, own.threads, norm.width, [&](const auto& at) { return addition.fetch_terms(offset, at); },
      [&](const auto& terms, const auto& at, float(&values)[kEight]) {
        addition.finish(terms, offset, at, values);
        round_as(addition.out, values);
      });
  normalize_row(norm, epsilon, own, held, parameters, y, offset, statistics);
}

template <bool kWarps>
void start(const Kernel& add, const Kernel& normalize, const Norm& norm, const Launcher& launcher) {
  launch<add_and_normalize<kWarps>>(
      launcher.stream, norm_shape<kWarps>(norm), OperandRanges(add, normalize), addition_of(add), norm,
      static_cast<float>(settings_of(normalize).model.norm_epsilon), reals(normalize.operands[1]),
      reals(normalize.operands[2]), reinterpret_cast<float*>(normalize.operands[3].data));
}

}  // namespace

void residual_add(const Kernel& kernel, const Launcher& launcher) {
  const Elements hidden = kernel.dims[1];
  const Tiles tiles = tiles_of(hidden);
  with_vectors(takes_vectors(kernel, hidden), [&](auto vectors) {
    launch<add_residual<vectors()>>(launcher.stream, shape_of(tiles, kernel.dims[0]), OperandRanges(kernel),
                                    tiles, addition_of(kernel));
  });
}

bool residual_add_and_norm(const Kernel& add, const Kernel& normalize, const Launcher& launcher) {
  const Tensor& sum = add.operands[4];
  const Norm norm = norm_of(normalize, normalize.operands[0], normalize.operands[1], normalize.operands[3]);
  const bool is_its = normalize.operands[0].data == sum.data && normalize.operands[0].type == sum.type &&
                      norm.parts == 0 && norm.rows == add.dims[0] && norm.width == add.dims[1];
  const bool vectors = takes_vectors(add, norm.width) && norm.takes_vectors(normalize.operands[2]);
  if (!is_its || !vectors || norm.width == 0 || norm.width > kWidestHeld) return false;
  if (norm.width <= kWidestOfWarp) {
    start<true>(add, normalize, norm, launcher);
  } else {
    start<false>(add, normalize, norm, launcher);
  }
  return true;
}

}  // namespace zeroplan::executor::cuda
