#pragma once

#include <vector>

#include "executor/rank.hpp"

namespace zeroplan::executor {

// Seconds that this rank waited for others in each instruction of its program, all calls since the last
// clear_profile() together; 0 for what is no collective. All ranks of its groups must call it.
std::vector<double> measure_waiting(Rank& rank);

}  // namespace zeroplan::executor
