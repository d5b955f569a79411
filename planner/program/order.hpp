#pragma once

#include "planner/program/step_program.hpp"

namespace zeroplan::program {

// Iterations that are walked of a repeat that does not move the layer register: micro-batches, chunks.
inline constexpr std::int64_t kWalkedMicroBatches = 3;

// Finds what every instruction must wait for on other streams, and writes it into `program.order`: read after write,
// write after read and write after write over instances of buffers, over memory that one buffer released and another
// acquired, and over a group's collectives. The result depends on what was emitted and on the numbers of instances,
// and not on sizes or on where memory is placed.
//
// Requires that a step begins and ends with everything finished. Loops are not walked to their end: of layers that are
// alike, (ring slots + 2) times the longest stride are, and of micro-batches three, because from there on everything
// that a wait can reach has been there before.
void derive_order(StepProgram& program);

}  // namespace zeroplan::program
