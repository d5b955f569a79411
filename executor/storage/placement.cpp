#include "executor/storage/placement.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace zeroplan::executor {

using program::TensorPlacement;

std::string whole_name(const program::StepProgram& program, const TensorPlacement& tensor,
                       std::int64_t layer) {
  if (!program.units[tensor.unit].is_layer) return std::string(tensor.name);
  return fmt::format("layers.{}.{}", layer, tensor.name);
}

std::vector<Elements> whole_shape(const TensorPlacement& tensor) {
  std::vector<Elements> shape;
  if (tensor.copies > 1) shape.push_back(tensor.copies);
  shape.push_back(tensor.whole_outputs);
  if (tensor.whole_inputs > 1) shape.push_back(tensor.whole_inputs);
  return shape;
}

void for_each_strip(const program::StepProgram& program, std::size_t unit, Elements begin, Elements end,
                    const std::function<void(const Strip&)>& visit) {
  std::vector<std::size_t> order;  // by place in the unit
  for (std::size_t i = 0; i < program.tensors.size(); ++i) {
    if (program.tensors[i].unit == unit) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return program.tensors[a].offset < program.tensors[b].offset;
  });
  for (const std::size_t index : order) {
    const TensorPlacement& tensor = program.tensors[index];
    const Elements rows = std::clamp<Elements>(tensor.whole_outputs - tensor.first_output, 0, tensor.outputs);
    const Elements columns = std::clamp<Elements>(tensor.whole_inputs - tensor.first_input, 0, tensor.inputs);
    // Whole rows lie behind each other in both.
    const bool joined = tensor.inputs == tensor.whole_inputs;
    const Elements pieces = joined ? 1 : rows;
    const Elements length = joined ? rows * columns : columns;
    for (std::int64_t copy = 0; copy < tensor.copies; ++copy) {
      for (Elements piece = 0; piece < pieces; ++piece) {
        const Elements flat = tensor.offset + (copy * tensor.outputs + piece) * tensor.inputs;
        const Elements first = std::max(flat, begin);
        const Elements last = std::min(flat + length, end);
        if (first >= last) continue;
        const Elements row = copy * tensor.whole_outputs + tensor.first_output + piece;
        const Elements whole = row * tensor.whole_inputs + tensor.first_input;
        visit({index, first, whole + first - flat, last - first});
      }
    }
  }
}

}  // namespace zeroplan::executor
