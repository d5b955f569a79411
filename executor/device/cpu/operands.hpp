#pragma once

#include <cstddef>

#include "executor/device/cpu/workers.hpp"
#include "executor/device/device.hpp"

namespace zeroplan::executor::cpu {

// Throws DeviceError, which names instruction and operand, where an operand is missing, smaller than the dims ask or of
// a type that the instruction table does not have there.
void check_operands(const Kernel& kernel);

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
