#pragma once

#include "planner/program/step_program.hpp"

namespace zeroplan::program {

// The least number of iterations in which every set of instances has been used.
std::int64_t slots_of(const StepProgram& program);
// So many of the `count` iterations of a repeat over micro-batches show all that happens in it; they end with the same set
// of instances. 3 where there is one set.
std::int64_t walked_iterations(std::int64_t count, std::int64_t slots);

// Finds what every instruction must wait for on other streams, and writes it into `program.order`: read after write,
// write after read and write after write over instances of buffers, over memory that one buffer released and another
// acquired, and over a group's collectives. The result depends on what was emitted and on the numbers of instances,
// and not on sizes or on where memory is placed.
//
// Requires that a step begins and ends with everything finished. Loops are not walked to their end: of layers that are
// alike, (ring slots + 2) times the longest stride are, and of micro-batches walked_iterations(), because from there on everything
// that a wait can reach has been there before.
void derive_order(StepProgram& program);

}  // namespace zeroplan::program
