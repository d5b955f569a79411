#include "executor/device/cuda/launch.hpp"

#include <fmt/format.h>

#include "executor/error.hpp"
#include "planner/instructions/table.hpp"

namespace zeroplan::executor::cuda {

OperandRanges::OperandRanges(const Kernel& kernel) {
  const program::InstructionRow& row = program::row_of(kernel.op);
  for (std::size_t i = 0; i < row.operands.size(); ++i) {
    const program::Role role = row.operands[i].role;
    const Tensor& tensor = kernel.operands[i];
    if (role == program::Role::none) break;
    if (!tensor) continue;
    ranges_[count_++] = {tensor.data, tensor.bytes(), role != program::Role::out, role != program::Role::in};
  }
  const bool draws = kernel.op == program::Op::dropout_forward ||
                     (kernel.op == program::Op::residual_add && kernel.operands[3]);
  if ((draws || kernel.op == program::Op::optimizer_update) && kernel.scalars) {
    ranges_[count_++] = {kernel.scalars.data, kernel.scalars.bytes(), true, false};
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
