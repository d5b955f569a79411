#pragma once

#include <cstddef>
#include <span>

#include "planner/program/step_program.hpp"
#include "planner/units.hpp"

namespace zeroplan::executor {

// Memory with a type: what an operand of an instruction is when it runs. Does not own.
struct Tensor {
  std::byte* data = nullptr;
  program::DataType type = program::DataType::fp32;
  Elements elements = 0;

  explicit operator bool() const { return data != nullptr; }
  Bytes bytes() const { return elements * program::bytes_of(type); }

  // The memory as elements of the machine's type; 16-bit types are their bit patterns (uint16_t).
  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data), static_cast<std::size_t>(elements)};
  }
};

}  // namespace zeroplan::executor
