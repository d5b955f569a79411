#include "cli/command.hpp"
#include "cli/goal.hpp"
#include "cli/options.hpp"
#include "cli/version.hpp"
#include "planner/solve/strategies.hpp"
#include "reports/compare_report.hpp"

namespace zeroplan::cli {

Answer compare(const Request& request) {
  const predict::TrainingGoal goal = read_goal(request);
  const std::string argument = model_argument(request);
  const std::string& hardware = hardware_argument(request);
  const describe::Model model = describe::resolve_model(argument);
  const describe::ResolvedPlan resolved = describe::resolve_plan(request.options, model, hardware);
  const std::vector<solve::Strategy> rows = solve::strategies(model, request.options, hardware);
  return {reports::compare_report({version(), argument, hardware, model, resolved, rows, goal}), kYes};
}

}  // namespace zeroplan::cli
