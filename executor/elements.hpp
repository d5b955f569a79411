#pragma once

#include <cstdint>

#include "executor/half.hpp"
#include "executor/tensor.hpp"

// Elements of a tensor of real numbers as fp32, one by one, for what is not worth a kernel.
namespace zeroplan::executor {

inline void store_element(const Tensor& tensor, Elements index, float value) {
  const auto i = static_cast<std::size_t>(index);
  switch (tensor.type) {
    case program::DataType::fp32:
      tensor.as<float>()[i] = value;
      break;
    case program::DataType::fp16:
      tensor.as<std::uint16_t>()[i] = fp16_from_float(value);
      break;
    default:
      tensor.as<std::uint16_t>()[i] = bf16_from_float(value);
  }
}

inline float load_element(const Tensor& tensor, Elements index) {
  const auto i = static_cast<std::size_t>(index);
  switch (tensor.type) {
    case program::DataType::fp32:
      return tensor.as<float>()[i];
    case program::DataType::fp16:
      return float_from_fp16(tensor.as<std::uint16_t>()[i]);
    default:
      return float_from_bf16(tensor.as<std::uint16_t>()[i]);
  }
}

}  // namespace zeroplan::executor
