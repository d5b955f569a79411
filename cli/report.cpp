#include "cli/command.hpp"
#include "cli/goal.hpp"
#include "cli/options.hpp"
#include "cli/version.hpp"
#include "planner/predict/prediction.hpp"
#include "planner/predict/trace.hpp"
#include "planner/solve/strategies.hpp"
#include "planner/solve/suggest.hpp"
#include "planner/solve/what_if.hpp"
#include "reports/command_line.hpp"
#include "reports/pages/plan_page.hpp"

namespace zeroplan::cli {

Answer report(const Request& request) {
  const predict::TrainingGoal goal = read_goal(request);
  const std::string argument = model_argument(request);
  const std::string& hardware = hardware_argument(request);
  const describe::Model model = describe::resolve_model(argument);
  const describe::ResolvedPlan resolved = describe::resolve_plan(request.options, model, hardware);
  const predict::Prediction prediction = predict::predict(model, resolved.plan, resolved.cluster);
  const int exit_code = exit_code_of(prediction.verdict);
  if (request.quiet) return {{}, exit_code};
  reports::FitAnswer fit{version(), argument, hardware, model, resolved, prediction, {}, goal};
  if (prediction.does_not_fit()) fit.suggestions = solve::suggest(model, request.options, hardware);
  std::string command = reports::command_line("report", argument, hardware, request.options);
  for (const char* own : {"tokens", "price"}) {
    if (const auto given = request.own.find(own); given != request.own.end())
      command += " --" + std::string(own) + " " + reports::shell_word(given->second);
  }
  reports::PlanPage page{fit, commit(), command, solve::stages(model, request.options, hardware), {}, {}};
  if (!prediction.program().states_only) {
    page.what_if = solve::what_if(model, request.options, hardware);
    const predict::KernelRates rates = predict::kernel_rates(resolved.cluster.device, resolved.plan);
    page.trace = predict::read_trace(prediction.program(), resolved.cluster, rates);
  }
  return {reports::plan_page(page), exit_code};
}

}  // namespace zeroplan::cli
