#include "cli/command.hpp"
#include "cli/options.hpp"
#include "cli/version.hpp"
#include "planner/describe/model/model.hpp"
#include "reports/models_report.hpp"

namespace zeroplan::cli {

Answer models(const Request& request) {
  const std::string action = action_argument(request, {"list", "show", "count"});
  if (action == "list") {
    std::vector<describe::Model> all;
    for (const std::string& name : describe::preset_model_names())
      all.push_back(describe::resolve_model(name));
    return {reports::models_list_report(version(), all), kYes};
  }
  const describe::Model model = describe::resolve_model(model_argument(request, 1));
  return {action == "show" ? reports::model_report(version(), model)
                           : reports::model_count_report(version(), model),
          kYes};
}

}  // namespace zeroplan::cli
