#include "cli/command.hpp"
#include "cli/goal.hpp"
#include "cli/options.hpp"
#include "cli/output_file.hpp"
#include "cli/version.hpp"
#include "planner/error.hpp"
#include "planner/predict/prediction.hpp"
#include "planner/predict/trace.hpp"
#include "planner/solve/suggest.hpp"
#include "reports/fit_report.hpp"
#include "reports/trace.hpp"

namespace zeroplan::cli {
namespace {

void write_trace(const Request& request, const describe::Model& model, const predict::Prediction& prediction,
                 const describe::ResolvedPlan& resolved) {
  const auto file = request.own.find("trace");
  if (file == request.own.end()) return;
  if (prediction.does_not_fit()) {
    throw ConfigurationError(Problem{"--trace", 0, "", "the plan does not fit, so there is no trace"});
  }
  const predict::KernelRates rates = predict::kernel_rates(resolved.cluster.device, resolved.plan);
  const predict::Trace trace = predict::read_trace(prediction.program(), resolved.cluster, rates);
  if (trace.events.empty()) {
    throw ConfigurationError(
        Problem{"--trace", 0, "",
                "the time of a step is not known for this model and machine, so there is no trace"});
  }
  const reports::TraceFrame frame{"predicted: " + model.name, prediction.overhead_bytes,
                                  prediction.capacity_bytes};
  write_whole_file(file->second, reports::chrome_trace(trace, frame), "--trace");
}

}  // namespace

std::vector<OptionSpec> fit_options() {
  std::vector<OptionSpec> options = goal_options();
  options.push_back(
      {{"--trace"}, "trace", "FILE", "writes the step as a Chrome trace, for chrome://tracing or Perfetto"});
  return options;
}

Answer fit(const Request& request) {
  const predict::TrainingGoal goal = read_goal(request);
  const std::string argument = model_argument(request);
  const std::string& hardware = hardware_argument(request);
  const describe::Model model = describe::resolve_model(argument);
  const describe::ResolvedPlan resolved = describe::resolve_plan(request.options, model, hardware);
  const predict::Prediction prediction = predict::predict(model, resolved.plan, resolved.cluster);
  reports::FitAnswer answer{version(), argument, hardware, model, resolved, prediction, {}, goal};
  write_trace(request, model, prediction, resolved);
  const int exit_code = exit_code_of(prediction.verdict);
  if (request.quiet) return {{}, exit_code};
  if (prediction.does_not_fit()) answer.suggestions = solve::suggest(model, request.options, hardware);
  return {reports::fit_report(answer), exit_code};
}

}  // namespace zeroplan::cli
