#pragma once

#include "planner/describe/model/model.hpp"
#include "planner/describe/plan/plan.hpp"
#include "planner/program/step_program.hpp"

namespace zeroplan::program {

// The step program of one rank. Requires a plan that check_plan() accepts for the model. Its length and the
// time it takes do not depend on the number of layers.
StepProgram compile(const describe::Model& model, const describe::Plan& plan, RankPosition rank = {});

// The same into `program`, whose storage is used again: for callers that compile many plans.
void compile_into(const describe::Model& model, const describe::Plan& plan, RankPosition rank,
                  StepProgram& program);

}  // namespace zeroplan::program
