#include "executor/device/cpu/operands.hpp"

#include <fmt/format.h>

#include "executor/device/cpu/wide.hpp"
#include "executor/error.hpp"
#include "executor/half_arrays.hpp"

namespace zeroplan::executor::cpu {

using program::DataType;

namespace {

bool is_real(DataType type) {
  return type == DataType::fp32 || type == DataType::fp16 || type == DataType::bf16;
}

void check_size(const Kernel& kernel, std::size_t index, Elements least) {
  const Elements found = kernel.operands.at(index).elements;
  if (found < least) {
    refuse(kernel, fmt::format("operand {} has {} elements where {} are needed", index, found, least));
  }
}

void check_real(const Kernel& kernel, std::size_t index) {
  if (!is_real(kernel.operands.at(index).type)) {
    refuse(kernel, fmt::format("operand {} must be fp32, fp16 or bf16", index));
  }
}

}  // namespace

void refuse(const Kernel& kernel, const std::string& reason) {
  throw DeviceError(fmt::format("cpu device: {}: {}", program::name_of(kernel.op), reason));
}

const Tensor& operand(const Kernel& kernel, std::size_t index, Elements least) {
  const Tensor& tensor = kernel.operands.at(index);
  if (!tensor) refuse(kernel, fmt::format("operand {} is missing", index));
  check_size(kernel, index, least);
  return tensor;
}

const Tensor& real_operand(const Kernel& kernel, std::size_t index, Elements least) {
  const Tensor& tensor = operand(kernel, index, least);
  check_real(kernel, index);
  return tensor;
}

Tensor optional_operand(const Kernel& kernel, std::size_t index, Elements least) {
  const Tensor& tensor = kernel.operands.at(index);
  if (!tensor) return {};
  check_size(kernel, index, least);
  check_real(kernel, index);
  return tensor;
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
