#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/describe/plan/plan.hpp"
#include "planner/predict/prediction.hpp"
#include "reports/data.hpp"

namespace zeroplan::reports {

// A plan and what is predicted for it: what figures are read from. Refers to what it is made from.
struct PredictedPlan {
  const describe::Model& model;
  const describe::ResolvedPlan& resolved;
  const predict::Prediction& prediction;
  const predict::TrainingGoal& goal;
};

// A figure of an answer about a plan, described once. JSON has it under its key, a table shows what stands under that
// key beside the title, and `explain` lists the key with its unit.
struct Figure {
  std::string key;    // dotted, under `result` of zeroplan.fit/1
  std::string title;  // of a row in a table; empty where no row is about it alone
  std::string unit;   // empty: it is not one number, and `explain` does not know it
  std::string what;   // for `explain`
  std::function<Data(const PredictedPlan& plan)> read;  // null where it is not known, or not asked for
};

// Those of memory, traffic and FLOPs, then those of time and speed (reports/speed.hpp), in the order of the answer.
const std::vector<Figure>& figures();

// Requires the key of one of figures().
const Figure& figure_of(std::string_view key);

// Every figure under its key.
Data figures_data(const PredictedPlan& plan);

// Bytes by the names of the categories.
Data category_data(const program::CategoryBytes& bytes);

inline constexpr std::string_view kCategoryPrefix = "by_category_bytes.";

}  // namespace zeroplan::reports
