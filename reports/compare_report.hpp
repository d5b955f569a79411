#pragma once

#include <string_view>
#include <vector>

#include "planner/describe/plan.hpp"
#include "planner/solve/strategies.hpp"
#include "reports/report.hpp"

namespace zeroplan::reports {

// Schema zeroplan.compare/1: one row per strategy. `resolved` is the user's own plan.
Report compare_report(std::string_view version, const describe::Model& model,
                      const describe::ResolvedPlan& resolved, const std::vector<solve::Strategy>& strategies,
                      const predict::TrainingGoal& goal = {});

}  // namespace zeroplan::reports
