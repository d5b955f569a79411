#pragma once

#include "planner/program/step_program.hpp"

namespace zeroplan::program {

// Sets `program.order` as derive_order() does (order.hpp), which it asks only for code that this thread has not seen:
// programs whose instructions, buffers and repeats are the same but for their sizes have the same order.
void set_order(StepProgram& program);

}  // namespace zeroplan::program
