#pragma once

#include <cstdint>

#include "planner/instructions/table.hpp"
#include "planner/program/step_program.hpp"

// Which instance of its buffer an operand means, for whoever walks a program with its two registers.
namespace zeroplan::program {

inline std::int64_t instance_of(const StepProgram& program, Operand operand, std::int64_t layer,
                                std::int64_t iteration) {
  return program.buffers[operand.buffer].instance_of(layer + operand.layer_offset,
                                                     iteration + operand.iteration_offset);
}

// Calls visit(buffer, instance) for each instance that a memory instruction takes or gives back, in its order: all of a
// buffer are given back in the order opposite to that in which they are taken.
template <class Visit>
void for_each_taken(const StepProgram& program, const Instruction& instruction, std::int64_t layer,
                    std::int64_t iteration, Visit&& visit) {
  const Operand operand = instruction.operands[0];
  const Takes takes = row_of(instruction.op).takes;
  if (!takes.every_instance) return visit(operand.buffer, instance_of(program, operand, layer, iteration));
  const std::int64_t count = program.buffers[operand.buffer].instances;
  for (std::int64_t i = 0; i < count; ++i) visit(operand.buffer, takes.sign > 0 ? i : count - 1 - i);
}

}  // namespace zeroplan::program
