#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/describe/plan/plan.hpp"
#include "planner/predict/prediction.hpp"
#include "planner/solve/suggest.hpp"
#include "reports/figures.hpp"
#include "reports/report.hpp"

namespace zeroplan::reports {

// One plan and what is predicted for it. Refers to what it is made from.
struct FitAnswer {
  std::string_view version;
  std::string_view model_argument;  // as the user wrote them: for the commands that are suggested
  std::string_view hardware_argument;
  const describe::Model& model;
  const describe::ResolvedPlan& resolved;
  const predict::Prediction& prediction;
  std::vector<solve::Suggestion> suggestions;
  predict::TrainingGoal goal{};

  PredictedPlan predicted() const { return {model, resolved, prediction, goal}; }
};

// Schema zeroplan.fit/1 (docs/schema/fit.schema.json).
Data fit_data(const FitAnswer& answer);

Report fit_report(const FitAnswer& answer);

}  // namespace zeroplan::reports
