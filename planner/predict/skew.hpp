#pragma once

#include <vector>

#include "planner/program/step_program.hpp"

namespace zeroplan::predict {

// Ranks that compute the same are not ready at the same moment: a collective waits for the last one, by
// `skew` of what its rank computed since it last met others. Adds that to the collectives among `seconds`,
// which are those of each instruction by its index.
void add_skew(const program::StepProgram& program, double skew, std::vector<double>& seconds);

}  // namespace zeroplan::predict
