#include "executor/device/cuda/launch.hpp"

#include <fmt/format.h>

#include "executor/error.hpp"
#include "executor/step_scalars.hpp"
#include "planner/instructions/table.hpp"

namespace zeroplan::executor::cuda {

void OperandRanges::add(const Kernel& kernel) {
  const program::InstructionRow& row = program::row_of(kernel.op);
  for (std::size_t i = 0; i < row.operands.size(); ++i) {
    const program::Role role = row.operands[i].role;
    const Tensor& tensor = kernel.operands[i];
    if (role == program::Role::none) break;
    if (!tensor) continue;
    const bool reads = role != program::Role::out, writes = role != program::Role::in;
    if (writes && tensor.data == kernel.scalars.data) {
      // The step's own are written by nobody.
      const Tensor step = step_part_of(tensor);
      const std::byte* end = tensor.data + tensor.bytes();
      ranges_[count_++] = {tensor.data, step.data - tensor.data, reads, true};
      ranges_[count_++] = {step.data, step.bytes(), true, false};
      ranges_[count_++] = {step.data + step.bytes(), end - (step.data + step.bytes()), reads, true};
      continue;
    }
    ranges_[count_++] = {tensor.data, tensor.bytes(), reads, writes};
  }
  if (reads_step(kernel)) {
    const Tensor step = step_part_of(kernel.scalars);
    ranges_[count_++] = {step.data, step.bytes(), true, false};
  }
}

void check_launch(cudaError_t error, std::string_view kernel) {
  if (error == cudaSuccess) return;
  throw DeviceError(
      fmt::format("cuda device: kernel {} did not start: {}", kernel, cudaGetErrorString(error)));
}

std::string_view kernel_name(std::string_view signature) {
  // "... [with auto kernel = NAMESPACE::name<types>; ...]" of gcc, "[kernel = &NAMESPACE::name<types>]" of clang.
  constexpr std::string_view kBefore = "kernel = ";
  const std::size_t found = signature.find(kBefore);
  if (found == std::string_view::npos) return signature;
  std::string_view name = signature.substr(found + kBefore.size());
  name = name.substr(0, name.find_first_of(";]"));
  const std::size_t scope = name.substr(0, name.find('<')).rfind("::");
  return scope == std::string_view::npos ? name : name.substr(scope + 2);
}

}  // namespace zeroplan::executor::cuda
