#include "executor/device/operand_checks.hpp"

#include <fmt/format.h>

#include "executor/error.hpp"
#include "planner/instructions/table.hpp"

namespace zeroplan::executor {

void refuse_kernel(std::string_view device, const Kernel& kernel, const std::string& reason) {
  throw DeviceError(fmt::format("{} device: {}: {}", device, program::name_of(kernel.op), reason));
}

void check_operands_of(std::string_view device, const Kernel& kernel) {
  const program::InstructionRow& row = program::row_of(kernel.op);
  const program::Shape shape{kernel.dims, kernel.extra, kernel.iteration};
  for (std::size_t i = 0; i < row.operands.size(); ++i) {
    const program::OperandRow& operand = row.operands[i];
    if (operand.role == program::Role::none) return;
    const Tensor& tensor = kernel.operands[i];
    if (!tensor) {
      if (operand.is_optional) continue;
      refuse_kernel(device, kernel, fmt::format("operand {} ({}) is missing", i, operand.name));
    }
    const Elements least = operand.extent(shape);
    if (tensor.elements < least) {
      refuse_kernel(device, kernel,
                    fmt::format("operand {} ({}) has {} elements where {} are needed", i, operand.name,
                                tensor.elements, least));
    }
    if (!program::allows(operand.types, tensor.type)) {
      refuse_kernel(device, kernel,
                    fmt::format("operand {} ({}) is {}, expected {}", i, operand.name,
                                program::name_of(tensor.type), program::text_of(operand.types)));
    }
  }
}

}  // namespace zeroplan::executor
