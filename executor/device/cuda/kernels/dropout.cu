#include "executor/device/cuda/checks.hpp"
#include "executor/device/cuda/kernels.hpp"
#include "executor/device/cuda/kernels/dropout.cuh"

namespace zeroplan::executor::cuda {

namespace {

template <bool kVectors, bool kDivided>
__global__ void __launch_bounds__(kFlatThreads) drop_elements(Dropout dropout, const float* scalars, Reals x,
                                                              std::uint8_t* mask, Reals y, Index elements) {
  const std::uint32_t step = step_of(scalars);
  over_flat<kVectors>(elements, [&](const auto& at) {
    float values[kEight];
    read(x, 0, at, values);
    const unsigned kept = draw<kDivided>(dropout, step, 0, at);
    drop(kept, dropout.scale(), values);
    write_mask(mask, 0, at, kept);
    write(y, 0, at, values);
  });
}

// Of dropout_backward, where from and to are one, and of residual_backward.
template <bool kVectors>
__global__ void __launch_bounds__(kFlatThreads)
    drop_by_mask(float scale, const std::uint8_t* mask, Reals from, Reals to, Index elements) {
  over_flat<kVectors>(elements, [&](const auto& at) {
    float values[kEight];
    read(from, 0, at, values);
    drop(read_mask(mask, 0, at), scale, values);
    write(to, 0, at, values);
  });
}

void start(const Kernel& kernel, const Launcher& launcher, const Tensor& mask, const Tensor& from,
           const Tensor& to, Elements elements) {
  const float scale = Dropout({}, settings_of(kernel).dropout).scale();
  with_vectors(are_aligned(mask, from, to), [&](auto vectors) {
    launch<drop_by_mask<vectors()>>(launcher.stream, flat_shape(elements), OperandRanges(kernel), scale,
                                    reinterpret_cast<const std::uint8_t*>(mask.data), reals(from), reals(to),
                                    elements);
  });
}

}  // namespace

void dropout_forward(const Kernel& kernel, const Launcher& launcher) {
  const Tensor& x = kernel.operands[0];
  const Tensor& mask = kernel.operands[1];
  const Tensor& y = kernel.operands[2];
  if (!kernel.scalars) refuse(kernel, "the scalars with the step's number are missing");
  const auto drop = [&](auto vectors, auto divided) {
    launch<drop_elements<vectors(), divided()>>(
        launcher.stream, flat_shape(kernel.dims[0]), OperandRanges(kernel),
        Dropout(kernel.mask, settings_of(kernel).dropout),
        reinterpret_cast<const float*>(kernel.scalars.data), reals(x),
        reinterpret_cast<std::uint8_t*>(mask.data), reals(y), kernel.dims[0]);
  };
  with_vectors(are_aligned(x, mask, y) && kernel.mask.numbers.are_in_fours(), [&](auto vectors) {
    if (kernel.mask.numbers.part != 0) {
      drop(vectors, std::true_type{});
    } else {
      drop(vectors, std::false_type{});
    }
  });
}

void dropout_backward(const Kernel& kernel, const Launcher& launcher) {
  const Tensor& dy = kernel.operands[1];
  start(kernel, launcher, kernel.operands[0], dy, dy, kernel.dims[0]);
}

void residual_backward(const Kernel& kernel, const Launcher& launcher) {
  start(kernel, launcher, kernel.operands[1], kernel.operands[0], kernel.operands[2],
        kernel.dims[0] * kernel.dims[1]);
}

}  // namespace zeroplan::executor::cuda
