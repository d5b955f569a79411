#pragma once

#include <vector>

#include "planner/program/step_program.hpp"

namespace zeroplan::predict {

// Ranks that compute the same are not ready at the same moment: a collective waits for the last one, by
// `skew` of what its rank computed since it last met others. Seconds of that wait by the index of an
// instruction, 0 of all but collectives. `seconds`: of each instruction by itself.
std::vector<double> waiting_for_others(const program::StepProgram& program, double skew,
                                       const std::vector<double>& seconds);

}  // namespace zeroplan::predict
