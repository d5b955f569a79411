#pragma once

#include <vector>

#include "planner/describe/plan/plan.hpp"

namespace zeroplan::describe {

// What the times of a plan's collectives rest on that nobody measured there: of the network between its nodes
// ("network"), and of links among as many devices of a node as a group has ("links"). Each entry says what it
// was taken from.
std::vector<Assumption> assumed_links(const Plan& plan, const Cluster& cluster);

}  // namespace zeroplan::describe
