#include "executor/device/cuda/checks.hpp"
#include "executor/device/cuda/kernels.hpp"
#include "executor/device/cuda/kernels/reals.cuh"
#include "planner/instructions/table.hpp"

namespace zeroplan::executor::cuda {

namespace {

template <bool kVectors>
__global__ void __launch_bounds__(kFlatThreads) convert(Reals from, Reals to, Index elements) {
  over_flat<kVectors>(elements, [&](const auto& at) {
    float values[kEight];
    read(from, 0, at, values);
    write(to, 0, at, values);
  });
}

template <bool kVectors>
__global__ void __launch_bounds__(kFlatThreads) add_to(Reals from, Reals to, Index elements) {
  over_flat<kVectors>(elements, [&](const auto& at) {
    const auto fetched = fetch(from, 0, at);
    const auto fetched_before = fetch(to, 0, at);
    float values[kEight];
    float before[kEight];
    unpack(fetched, from, values);
    unpack(fetched_before, to, before);
    ZEROPLAN_UNROLL
    for (int i = 0; i < kEight; ++i) values[i] = before[i] + values[i];
    write(to, 0, at, values);
  });
}

}  // namespace

void fill_zero(const Kernel& kernel, const Launcher& launcher) {
  const Tensor& out = kernel.operands[0];
  const Bytes bytes = kernel.dims[0] * program::bytes_of(out.type);
  if (bytes == 0) return;
  check_launch(cudaMemsetAsync(out.data, 0, static_cast<std::size_t>(bytes), launcher.stream), "fill_zero");
}

void copy(const Kernel& kernel, const Launcher& launcher) {
  const Elements elements = kernel.dims[0];
  const Tensor& from = kernel.operands[0];
  const Tensor& to = kernel.operands[1];
  if (from.data == to.data || elements == 0) return;
  if (from.type == to.type) {
    const auto bytes = static_cast<std::size_t>(elements * program::bytes_of(to.type));
    return check_launch(cudaMemcpyAsync(to.data, from.data, bytes, cudaMemcpyDefault, launcher.stream),
                        "copy");
  }
  if (!program::allows(program::Types::real, from.type) || !program::allows(program::Types::real, to.type)) {
    refuse(kernel, "integers do not become another type");
  }
  with_vectors(are_aligned(from, to), [&](auto vectors) {
    launch<convert<vectors()>>(launcher.stream, flat_shape(elements), OperandRanges(kernel), reals(from),
                               reals(to), elements);
  });
}

void accumulate(const Kernel& kernel, const Launcher& launcher) {
  const Elements elements = kernel.dims[0];
  const Tensor& from = kernel.operands[0];
  const Tensor& to = kernel.operands[1];
  with_vectors(are_aligned(from, to), [&](auto vectors) {
    launch<add_to<vectors()>>(launcher.stream, flat_shape(elements), OperandRanges(kernel), reals(from),
                              reals(to), elements);
  });
}

}  // namespace zeroplan::executor::cuda
