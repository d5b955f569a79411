#pragma once

#include <vector>

#include "executor/rank.hpp"

namespace zeroplan::executor {

// Adds to `of_instruction` what this rank waited in the calls that its interpreter has noted, and has them
// forgotten: of each group that noted at least `calls` of them, so that a long run keeps few. Between steps; all
// ranks of its groups must call it.
void add_waiting(std::vector<double>& of_instruction, Rank& rank, std::size_t calls);

// Seconds that this rank waited for others in each instruction of its program, all calls since the last
// clear_profile() together; 0 for what is no collective. All ranks of its groups must call it, once.
std::vector<double> measure_waiting(Rank& rank);

}  // namespace zeroplan::executor
