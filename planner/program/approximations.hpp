#pragma once

#include <vector>

#include "planner/describe/model/model.hpp"
#include "planner/program/step_program.hpp"

namespace zeroplan::program {

// What compile() leaves out of this model or does in another way: the list that every answer shows, and
// because of which a run is refused. Empty for a model that is known by its parameter count alone.
std::vector<Approximation> approximations_of(const describe::Model& model);

}  // namespace zeroplan::program
