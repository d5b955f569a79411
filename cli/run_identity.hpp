#pragma once

#include "cli/command.hpp"
#include "executor/launch.hpp"
#include "executor/run_identity.hpp"
#include "planner/describe/model/model.hpp"
#include "planner/describe/plan/plan.hpp"

namespace zeroplan::cli {

// What every rank of a live run must have in common: the job and the build of zeroplan, and each option of
// the command that is not this rank's alone. Of a file it is what is in it, not where it is.
executor::RunIdentity run_identity(const Request& request, const executor::Launch& launch);

// The same, with the plan's fields, the model, and the program that comes of them.
executor::RunIdentity run_identity(const Request& request, const executor::Launch& launch,
                                   const describe::Model& model, const describe::Plan& plan);

}  // namespace zeroplan::cli
