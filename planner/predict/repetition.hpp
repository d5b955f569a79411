#pragma once

#include <array>
#include <stdexcept>

#include "planner/instructions/table.hpp"
#include "planner/program/step_program.hpp"

namespace zeroplan::predict {

// Repeats around one instruction: micro-batches, blocks of layers, layers, chunks, and room.
inline constexpr std::size_t kDeepestRepeat = 8;

// The phase that instruction `begin` is in.
inline program::Phase phase_at(const program::StepProgram& program, std::size_t begin) {
  while (begin-- > 0) {
    const program::Instruction& instruction = program.code[begin];
    if (instruction.op == program::Op::phase) return static_cast<program::Phase>(instruction.dims[0]);
  }
  return program::Phase::setup;
}

// Calls visit(instruction, phase, times) for each kernel, copy, collective and input of [begin, end): `times` is the
// product of the counts of the repeats around it there. What adds up over a step is read this way.
template <class Visit>
void for_each_repeated(const program::StepProgram& program, std::size_t begin, std::size_t end,
                       Visit&& visit) {
  std::array<double, kDeepestRepeat> times{1};
  std::size_t depth = 0;
  program::Phase phase = phase_at(program, begin);
  for (std::size_t i = begin; i < end; ++i) {
    const program::Instruction& instruction = program.code[i];
    switch (instruction.op) {
      case program::Op::repeat:
        if (++depth == kDeepestRepeat) throw std::logic_error("for_each_repeated: repeats nested too deep");
        times[depth] = times[depth - 1] * static_cast<double>(instruction.dims[0]);
        break;
      case program::Op::end_repeat:
        --depth;
        break;
      case program::Op::phase:
        phase = static_cast<program::Phase>(instruction.dims[0]);
        break;
      default:
        if (program::is_executed(instruction.op)) visit(instruction, phase, times[depth]);
    }
  }
}
template <class Visit>
void for_each_repeated(const program::StepProgram& program, Visit&& visit) {
  for_each_repeated(program, 0, program.code.size(), visit);
}

}  // namespace zeroplan::predict
