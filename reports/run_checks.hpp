#pragma once

#include <vector>

#include "planner/program/measurement.hpp"
#include "reports/comparison.hpp"

namespace zeroplan::reports {

// What must hold of a run that trained, whatever was predicted:
//
//   losses are finite and above 0
//   updates were made, by gradients that are not 0. A skipped step is the business of a loss scale that looks for its size; where the scale
//   has nothing left to halve, or every measured step was skipped, the run has diverged or has not begun
//   ranks of a host waited for each other: none left a barrier before the last came to it
//   ranks hold alike what they must hold alike
std::vector<ComparedText> check_run(const program::Measurement& measurement);

}  // namespace zeroplan::reports
