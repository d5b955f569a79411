#include <fmt/format.h>

#include <algorithm>

#include "cli/command.hpp"
#include "cli/goal.hpp"
#include "cli/options.hpp"
#include "cli/version.hpp"
#include "planner/predict/prediction.hpp"
#include "reports/explain_report.hpp"
#include "reports/program_report.hpp"

namespace zeroplan::cli {
namespace {

void check_key(const std::string& key) {
  std::vector<std::string> names;
  for (const reports::ExplainKey& known : reports::explain_keys()) names.push_back(known.name);
  if (std::find(names.begin(), names.end(), key) != names.end()) return;
  std::string message = "unknown key " + zeroplan::quoted(key);
  const std::string nearest = nearest_name(key, names);
  message += nearest.empty() ? "; zeroplan explain lists them" : "; nearest: " + nearest;
  throw ConfigurationError(Problem{"KEY", 0, "", message});
}

}  // namespace

std::vector<OptionSpec> explain_options() {
  std::vector<OptionSpec> options = goal_options();
  options.push_back(
      {{"--program"}, "program", "", "instead of a number, the step: its instructions and their order"});
  return options;
}

Answer explain(const Request& request) {
  const bool shows_program = request.own.contains("program");
  if (request.arguments.empty() && !shows_program) return {reports::explain_keys_report(version()), kYes};
  const std::string key = shows_program ? "" : request.arguments.front();
  if (!shows_program) check_key(key);
  const predict::TrainingGoal goal = read_goal(request);
  const std::string argument = model_argument(request, shows_program ? 0 : 1);
  const std::string& hardware = hardware_argument(request);
  const describe::Model model = describe::resolve_model(argument);
  const describe::ResolvedPlan resolved = describe::resolve_plan(request.options, model, hardware);
  const predict::Prediction prediction = predict::predict(model, resolved.plan, resolved.cluster);
  const reports::FitAnswer answer{version(), argument, hardware, model, resolved, prediction, {}, goal};
  if (shows_program) return {reports::program_report(answer), kYes};
  if (const std::string reason = reports::why_not_known(key, answer.predicted()); !reason.empty()) {
    throw ConfigurationError(Problem{"KEY", 0, "", fmt::format("{} has no value: {}", key, reason)});
  }
  return {reports::explain_report(key, answer), kYes};
}

}  // namespace zeroplan::cli
