#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/predict/trace.hpp"
#include "planner/solve/strategies.hpp"
#include "planner/solve/what_if.hpp"
#include "reports/fit_report.hpp"
#include "reports/report.hpp"

namespace zeroplan::reports {

// A plan and what surrounds it: what `report` says of it. Refers to what it is made from.
struct PlanPage {
  const FitAnswer& fit;
  std::string_view commit;   // of the program
  std::string_view command;  // that asks the same again
  std::vector<solve::Strategy> stages;
  std::vector<solve::WhatIf> what_if;
  predict::Trace trace;  // empty where times are not known
};

// Schema zeroplan.report/1: everything that the page shows.
Data plan_page_data(const PlanPage& page);

// Its parts, from the top of the page to its end: what a manager reads first, then what an engineer asks.
Report plan_page(const PlanPage& page);

}  // namespace zeroplan::reports
