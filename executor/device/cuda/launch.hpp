#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "executor/device/device.hpp"

#if defined(ZEROPLAN_EMULATED)
#include "block/block.hpp"
#include "runtime/queue.hpp"
#endif

// The one place where a kernel starts.
namespace zeroplan::executor::cuda {

// Where kernels of one stream run, and how much there is to fill.
struct Launcher {
  cudaStream_t stream = nullptr;
  int multiprocessors = 1;
  int sm = 80;  // compute capability, 10 major + minor
  // For what kernels of this stream hand to each other within an instruction; at least kKernelWorkspace of it.
  std::byte* workspace = nullptr;
  Bytes workspace_bytes = 0;
};
inline constexpr Bytes kKernelWorkspace = 16 * kMiB;

struct LaunchShape {
  dim3 grid, block;
  std::size_t shared_bytes = 0;
};

// Memory of the device that a kernel touches.
struct OperandRange {
  const void* begin = nullptr;
  Bytes bytes = 0;
  bool reads = false, writes = false;
};

// What an instruction's row says that it touches, and the scalars where it reads the step's.
class OperandRanges {
 public:
  explicit OperandRanges(const Kernel& kernel) { add(kernel); }
  // Of two instructions that one kernel does.
  OperandRanges(const Kernel& first, const Kernel& second) {
    add(first);
    add(second);
  }
  // NOLINTNEXTLINE(google-explicit-constructor): it is the list
  operator std::span<const OperandRange>() const { return {ranges_.data(), count_}; }

 private:
  void add(const Kernel& kernel);

  std::array<OperandRange, 2 * (program::kMaxOperands + 3)> ranges_{};
  std::size_t count_ = 0;
};

// Throws DeviceError, which names the kernel, unless the launch was taken.
void check_launch(cudaError_t error, std::string_view kernel);

// The kernel's own name out of a function's signature that has it as a template argument.
std::string_view kernel_name(std::string_view signature);

namespace detail {

template <auto kernel>
std::string_view name_of_kernel() {
  return kernel_name(__PRETTY_FUNCTION__);
}

#if defined(ZEROPLAN_EMULATED)

// Kernels see device memory where the host can reach it.
template <class T>
T translated(const T& value) {
  if constexpr (std::is_pointer_v<T>) {
    return emulation::host(value);
  } else if constexpr (requires { value.translated([](auto* pointer) { return pointer; }); }) {
    return value.translated([](auto* pointer) { return emulation::host(pointer); });
  } else {
    return value;
  }
}

template <auto kernel, class... Parameters>
void launch(cudaStream_t stream, const LaunchShape& shape, std::span<const OperandRange> operands,
            void (*)(Parameters...), std::type_identity_t<Parameters>... arguments) {
  std::vector<emulation::Range> ranges;
  for (const OperandRange& operand : operands) {
    ranges.push_back({operand.begin, static_cast<std::size_t>(operand.bytes), operand.reads, operand.writes});
  }
  static const std::string name(name_of_kernel<kernel>());
  const emulation::GridShape grid{{shape.grid.x, shape.grid.y, shape.grid.z},
                                  {shape.block.x, shape.block.y, shape.block.z},
                                  shape.shared_bytes};
  check_launch(
      emulation::enqueue(
          stream, name.c_str(), ranges,
          [=] { emulation::run_grid(name.c_str(), grid, [&] { kernel(translated(arguments)...); }); }),
      name);
}

#else

inline constexpr std::size_t kSharedWithoutAsking = std::size_t{48} * 1024;

template <auto kernel, class... Parameters>
void launch(cudaStream_t stream, const LaunchShape& shape, std::span<const OperandRange>,
            void (*)(Parameters...), std::type_identity_t<Parameters>... arguments) {
  const auto* function = reinterpret_cast<const void*>(kernel);
  if (shape.shared_bytes > kSharedWithoutAsking) {
    check_launch(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(shape.shared_bytes)),
                 name_of_kernel<kernel>());
  }
  cudaLaunchConfig_t configuration{};
  configuration.gridDim = shape.grid;
  configuration.blockDim = shape.block;
  configuration.dynamicSmemBytes = shape.shared_bytes;
  configuration.stream = stream;
  std::array<void*, sizeof...(Parameters)> pointers{&arguments...};
  check_launch(cudaLaunchKernelExC(&configuration, function, pointers.data()), name_of_kernel<kernel>());
}

#endif

}  // namespace detail

// Starts a kernel on a stream: launch<kernel>(stream, shape, OperandRanges(instruction), arguments...). Nothing starts
// where the grid or the block is empty. Arguments become the kernel's parameter types. A pointer into device memory is
// an argument of its own, or inside a value whose `translated(f)` returns it with f applied to its pointers.
template <auto kernel, class... Arguments>
void launch(cudaStream_t stream, const LaunchShape& shape, std::span<const OperandRange> operands,
            Arguments... arguments) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  detail::launch<kernel>(stream, shape, operands, kernel, arguments...);
}

// A grid of one dimension with a thread for each of `threads`, but no more blocks than fill the device `waves` times:
// for kernels whose threads take several elements (grid_threads()).
inline LaunchShape grid_for(const Launcher& launcher, std::int64_t threads, unsigned block = 256,
                            std::int64_t waves = 8) {
  const std::int64_t most = std::int64_t{launcher.multiprocessors} * waves;
  const std::int64_t blocks = std::min(div_ceil(threads, block), std::max<std::int64_t>(1, most));
  return {dim3(static_cast<unsigned>(blocks)), dim3(block), 0};
}

}  // namespace zeroplan::executor::cuda
