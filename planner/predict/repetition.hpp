#pragma once

#include <array>
#include <stdexcept>

#include "planner/instructions/table.hpp"
#include "planner/program/step_program.hpp"

namespace zeroplan::predict {

// Repeats around one instruction: micro-batches, blocks of layers, layers, chunks, and room.
inline constexpr std::size_t kDeepestRepeat = 8;

// Calls visit(instruction, phase, times) for each kernel, copy, collective and input: `times` is the product of the
// counts of the repeats around it. What adds up over a step is read this way.
template <class Visit>
void for_each_repeated(const program::StepProgram& program, Visit&& visit) {
  std::array<double, kDeepestRepeat> times{1};
  std::size_t depth = 0;
  program::Phase phase = program::Phase::setup;
  for (const program::Instruction& instruction : program.code) {
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

}  // namespace zeroplan::predict
