#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "executor/interpreter.hpp"
#include "planner/program/step_program.hpp"

namespace zeroplan::executor {

// One value of a model's parameters: element {output, input} of `copy` of the tensor `name` in `layer`. The
// same on every rank and for every layout, because it depends on nothing else.
struct ParameterElement {
  std::string_view name;
  std::uint64_t key = 0;  // of the name, for generators
  std::int64_t layer = 0;
  std::int64_t copy = 0;
  Elements output = 0, input = 0;
};
using ParameterValue = std::function<float(const ParameterElement&)>;

// GPT-2's initialisation: matrices (nearly) normal with deviation 0.02, those that write to the residual
// stream divided by sqrt(2 x layers), norms `norm_weight`, biases 0. Values come from a counter-based generator over
// (seed, name, layer, element).
ParameterValue normal_initialization(std::uint64_t seed, std::int64_t layers, float norm_weight = 1);

// Sets what stays from step to step to 0: parameters with their padding, masters, optimizer states and the
// scalars, as far as units say that they reach. Memory that was acquired holds anything. Requires
// Interpreter::setup().
void clear_states(const program::StepProgram& program, Interpreter& interpreter);

// Writes every parameter that this rank holds, in fp32 where there is a master copy and in the compute type.
// Requires clear_states().
void initialize_parameters(const program::StepProgram& program, Interpreter& interpreter,
                           const ParameterValue& value);

// Calls visit(element, flat index inside the unit's vector) for each element of a tensor in one layer.
void for_each_element(const program::TensorPlacement& tensor, std::int64_t layer,
                      const std::function<void(const ParameterElement&, Elements flat)>& visit);

}  // namespace zeroplan::executor
