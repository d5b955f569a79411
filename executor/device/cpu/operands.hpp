#pragma once

#include <cstddef>

#include "executor/device/cpu/workers.hpp"
#include "executor/device/device.hpp"

namespace zeroplan::executor::cpu {

// Operand `index` of at least `least` elements. Throws DeviceError that names instruction and operand.
const Tensor& operand(const Kernel& kernel, std::size_t index, Elements least);
// The same, of a type of real numbers.
const Tensor& real_operand(const Kernel& kernel, std::size_t index, Elements least);
// Operands the instruction may lack: no data then.
Tensor optional_operand(const Kernel& kernel, std::size_t index, Elements least);

[[noreturn]] void refuse(const Kernel& kernel, const std::string& reason);

float& scalar(const Tensor& scalars, program::Scalar which);

// ---- Elements of any real type as fp32 ----

// `count` elements from `offset` on: where they are when they are fp32, else converted into scratch.
const float* read(const Tensor& tensor, Elements offset, Elements count, Scratch& scratch);
// Where to put `count` elements that finish_write() then rounds into `offset` on.
float* begin_write(const Tensor& tensor, Elements offset, Elements count, Scratch& scratch);
// The same with what is there now.
float* begin_update(const Tensor& tensor, Elements offset, Elements count, Scratch& scratch);
void finish_write(const Tensor& tensor, Elements offset, Elements count, const float* values);
// Adds with one rounding.
void add(const Tensor& tensor, Elements offset, Elements count, const float* values, Scratch& scratch);

}  // namespace zeroplan::executor::cpu
