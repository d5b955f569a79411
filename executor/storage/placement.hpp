#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "planner/program/step_program.hpp"

// Where the elements of a rank's flat vectors are in the model's whole tensors, which do not depend on degrees
// and stages.
namespace zeroplan::executor {

// "layers.3.attention.query.weight", "embedding.token"
std::string whole_name(const program::StepProgram& program, const program::TensorPlacement& tensor,
                       std::int64_t layer);

// {outputs, inputs}; {outputs} of a vector; {copies, outputs, inputs} of experts.
std::vector<Elements> whole_shape(const program::TensorPlacement& tensor);

// Elements that lie behind each other both in a unit's flat vector and in a whole tensor.
struct Strip {
  std::size_t tensor = 0;  // index into StepProgram::tensors
  Elements flat = 0;       // first one in the unit's vector
  Elements whole = 0;      // first one in the whole tensor
  Elements count = 0;
};

// Visits what of [begin, end) of a unit's flat vector is in the model, in ascending order. Padding is in no
// strip.
void for_each_strip(const program::StepProgram& program, std::size_t unit, Elements begin, Elements end,
                    const std::function<void(const Strip&)>& visit);

}  // namespace zeroplan::executor
