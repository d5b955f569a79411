#pragma once

#include <vector>

#include "cli/command.hpp"
#include "planner/predict/metrics.hpp"

namespace zeroplan::cli {

// --tokens and --price.
std::vector<OptionSpec> goal_options();

// What they say. Throws ConfigurationError with everything that is wrong.
predict::TrainingGoal read_goal(const Request& request);

}  // namespace zeroplan::cli
