#pragma once

#include <string_view>
#include <vector>

#include "planner/describe/plan/plan.hpp"
#include "planner/solve/strategies.hpp"
#include "reports/report.hpp"

namespace zeroplan::reports {

// Strategies and the plan they are made from, the user's own. Refers to what it is made from.
struct CompareAnswer {
  std::string_view version;
  std::string_view model_argument;  // as the user wrote them: for the commands of the rows
  std::string_view hardware_argument;
  const describe::Model& model;
  const describe::ResolvedPlan& resolved;
  const std::vector<solve::Strategy>& strategies;
  predict::TrainingGoal goal{};
};

// Schema zeroplan.compare/1: one row per strategy, with the command whose answer it is, and which of those
// that fit is the fastest.
Report compare_report(const CompareAnswer& answer);

}  // namespace zeroplan::reports
