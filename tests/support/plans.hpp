#pragma once

#include <functional>
#include <string>

#include "planner/describe/model/model.hpp"
#include "planner/describe/plan/plan.hpp"

namespace zeroplan::test {

// A plan of the native engine with nothing special about it; tests change fields.
describe::Plan plain_plan();

// Small models with odd sizes: partitions come out uneven, and the layers differ from the ends.
describe::Model small_gpt();
describe::Model small_llama();

// Every combination of stage, degrees, recomputation, activation handling, offload and precision that
// check_plan() accepts for a model, with a name for messages. At least 200 for the small models together.
void for_each_plan(const describe::Model& model,
                   const std::function<void(const std::string& name, const describe::Plan& plan)>& visit);

}  // namespace zeroplan::test
