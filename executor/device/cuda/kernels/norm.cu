#include "executor/device/cuda/kernels.hpp"
#include "executor/device/cuda/kernels/norm_row.cuh"

namespace zeroplan::executor::cuda {

namespace {

// A warp or a block for each row. Rows of up to kWidestHeld elements are read once.
template <bool kVectors, bool kWarps, int kHeld>
__global__ void __launch_bounds__(kNormThreads<kWarps>)
    normalize(Norm norm, float epsilon, Reals x, NormRows rows_of_x, Reals parameters, Reals y,
              NormRows rows_of_y, float* statistics) {
  const RowThread<kWarps> own;
  if (own.row >= norm.rows) return;  // a whole warp
  const HeldRow<kVectors, kHeld> held(x, rows_of_x(own.row), own.thread, own.threads, norm.width);
  normalize_row(norm, epsilon, own, held, parameters, y, rows_of_y(own.row), statistics);
}

template <bool kVectors, bool kWarps, int kHeld>
void start(const Kernel& kernel, const Launcher& launcher, const Norm& norm) {
  const Tensor& x = kernel.operands[0];
  const Tensor& y = kernel.operands[2];
  launch<normalize<kVectors, kWarps, kHeld>>(launcher.stream, norm_shape<kWarps>(norm), OperandRanges(kernel),
                                             norm, static_cast<float>(settings_of(kernel).model.norm_epsilon),
                                             reals(x), norm.rows_of(x), reals(kernel.operands[1]), reals(y),
                                             norm.rows_of(y),
                                             reinterpret_cast<float*>(kernel.operands[3].data));
}

}  // namespace

void norm_forward(const Kernel& kernel, const Launcher& launcher) {
  const Tensor& x = kernel.operands[0];
  const Norm norm = norm_of(kernel, x, kernel.operands[1], kernel.operands[3]);
  if (norm.width == 0) return;
  with_vectors(norm.takes_vectors(x) && norm.takes_vectors(kernel.operands[2]), [&](auto vectors) {
    if (norm.width <= kWidestOfWarp) {
      start<vectors(), true, kNormChunks>(kernel, launcher, norm);
    } else if (norm.width <= kWidestHeld) {
      start<vectors(), false, kNormChunks>(kernel, launcher, norm);
    } else {
      start<vectors(), false, 0>(kernel, launcher, norm);
    }
  });
}

}  // namespace zeroplan::executor::cuda
