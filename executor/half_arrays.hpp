#pragma once

#include <cstdint>

#include "executor/tensor.hpp"

namespace zeroplan::executor {

// Elements of a 16-bit type to fp32 and back, as half.hpp does with one. `type` is fp16 or bf16.
void floats_from_halves(program::DataType type, const std::uint16_t* from, float* to, Elements count);
void halves_from_floats(program::DataType type, const float* from, std::uint16_t* to, Elements count);

}  // namespace zeroplan::executor
