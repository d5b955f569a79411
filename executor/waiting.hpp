#pragma once

#include <vector>

#include "executor/rank.hpp"

namespace zeroplan::executor {

// Adds to `of_instruction`, by index into the program's code, the seconds that this rank waited for others in each
// collective of the step that ran last. Between steps; all ranks of its groups must call it, once a step.
void add_waiting(std::vector<double>& of_instruction, Rank& rank);

}  // namespace zeroplan::executor
