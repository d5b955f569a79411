#pragma once

#include <vector>

#include "planner/program/step_program.hpp"
#include "reports/report.hpp"

// What a plan's program does otherwise than its model, told in every answer about the plan.
namespace zeroplan::reports {

Data approximations_data(const std::vector<program::Approximation>& approximations);

// "query_key_norm: ..., so another model is trained".
std::string approximation_text(const program::Approximation& approximation);

// A heading and a sentence each; nothing when there are none.
void add_approximations(std::vector<Block>& blocks,
                        const std::vector<program::Approximation>& approximations);

}  // namespace zeroplan::reports
