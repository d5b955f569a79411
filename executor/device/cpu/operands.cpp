#include "executor/device/cpu/operands.hpp"

#include "executor/device/cpu/wide.hpp"
#include "executor/device/operand_checks.hpp"
#include "executor/half_arrays.hpp"

namespace zeroplan::executor::cpu {

using program::DataType;

void refuse(const Kernel& kernel, const std::string& reason) { refuse_kernel("cpu", kernel, reason); }

void check_operands(const Kernel& kernel) { check_operands_of("cpu", kernel); }

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
