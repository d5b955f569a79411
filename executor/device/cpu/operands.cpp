#include "executor/device/cpu/operands.hpp"

#include <fmt/format.h>

#include "executor/device/cpu/wide.hpp"
#include "executor/error.hpp"
#include "executor/half_arrays.hpp"
#include "planner/instructions/table.hpp"

namespace zeroplan::executor::cpu {

using program::DataType;

void refuse(const Kernel& kernel, const std::string& reason) {
  throw DeviceError(fmt::format("cpu device: {}: {}", program::name_of(kernel.op), reason));
}

void check_operands(const Kernel& kernel) {
  const program::InstructionRow& row = program::row_of(kernel.op);
  const program::Shape shape{kernel.dims, kernel.extra, kernel.iteration};
  for (std::size_t i = 0; i < row.operands.size(); ++i) {
    const program::OperandRow& operand = row.operands[i];
    if (operand.role == program::Role::none) return;
    const Tensor& tensor = kernel.operands[i];
    if (!tensor) {
      if (operand.is_optional) continue;
      refuse(kernel, fmt::format("operand {} ({}) is missing", i, operand.name));
    }
    const Elements least = operand.extent(shape);
    if (tensor.elements < least) {
      refuse(kernel, fmt::format("operand {} ({}) has {} elements where {} are needed", i, operand.name,
                                 tensor.elements, least));
    }
    if (!program::allows(operand.types, tensor.type)) {
      refuse(kernel, fmt::format("operand {} ({}) is {}, expected {}", i, operand.name,
                                 program::name_of(tensor.type), program::text_of(operand.types)));
    }
  }
}

float& scalar(const Tensor& scalars, program::Scalar which) {
  return scalars.as<float>()[static_cast<std::size_t>(which)];
}

const float* read(const Tensor& tensor, Elements offset, Elements count, Scratch& scratch) {
  return begin_update(tensor, offset, count, scratch);
}

float* begin_update(const Tensor& tensor, Elements offset, Elements count, Scratch& scratch) {
  if (tensor.type == DataType::fp32) return tensor.as<float>().data() + offset;
  const std::uint16_t* from = tensor.as<std::uint16_t>().data() + offset;
  float* to = scratch.floats(count);
  floats_from_halves(tensor.type, from, to, count);
  return to;
}

float* begin_write(const Tensor& tensor, Elements offset, Elements count, Scratch& scratch) {
  if (tensor.type == DataType::fp32) return tensor.as<float>().data() + offset;
  return scratch.floats(count);
}

void finish_write(const Tensor& tensor, Elements offset, Elements count, const float* values) {
  if (tensor.type == DataType::fp32) {
    float* to = tensor.as<float>().data() + offset;
    if (to == values) return;
    std::copy(values, values + count, to);
    return;
  }
  halves_from_floats(tensor.type, values, tensor.as<std::uint16_t>().data() + offset, count);
}

void add(const Tensor& tensor, Elements offset, Elements count, const float* values, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const float* before = read(tensor, offset, count, scratch);
  float* after = begin_write(tensor, offset, count, scratch);
  wide([=]() ZEROPLAN_INLINE {
    ZEROPLAN_SIMD
    for (Elements i = 0; i < count; ++i) after[i] = before[i] + values[i];
  });
  finish_write(tensor, offset, count, after);
}

}  // namespace zeroplan::executor::cpu
