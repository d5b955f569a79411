#include "cli/command.hpp"
#include "cli/help.hpp"
#include "cli/options.hpp"
#include "planner/predict/prediction.hpp"
#include "planner/solve/suggest.hpp"
#include "reports/fit_report.hpp"

namespace zeroplan::cli {

Answer fit(const Request& request) {
  const std::string argument = model_argument(request);
  const std::string& hardware = hardware_argument(request);
  const describe::Model model = describe::resolve_model(argument);
  const describe::ResolvedPlan resolved = describe::resolve_plan(request.options, model, hardware);
  const predict::Prediction prediction = predict::predict(model, resolved.plan, resolved.cluster);
  reports::FitAnswer answer{version(), argument, hardware, model, resolved, prediction, {}};
  if (request.quiet) return {{}, prediction.fits() ? kYes : kNo};
  if (!prediction.fits()) answer.suggestions = solve::suggest(model, request.options, hardware);
  return {reports::fit_report(answer), prediction.fits() ? kYes : kNo};
}

}  // namespace zeroplan::cli
