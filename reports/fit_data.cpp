#include "reports/approximations.hpp"
#include "reports/command_line.hpp"
#include "reports/fit_report.hpp"
#include "reports/inputs.hpp"
#include "reports/verdict.hpp"

namespace zeroplan::reports {
namespace {

Data suggestions(const FitAnswer& answer) {
  Data list = Data::list();
  for (const solve::Suggestion& suggestion : answer.suggestions) {
    list.add(Data::map()
                 .set("command", command_line("fit", answer.model_argument, answer.hardware_argument,
                                              suggestion.options))
                 .set("what", suggestion.what)
                 .set("cost", suggestion.cost)
                 .set("peak_bytes", suggestion.peak_bytes)
                 .set("capacity_bytes", suggestion.capacity_bytes)
                 .set("host_bytes_per_node", suggestion.host_bytes_per_node)
                 .set("missing", missing_data(suggestion.missing)));
  }
  return list;
}

}  // namespace

Data fit_data(const FitAnswer& answer) {
  return Data::map()
      .set("schema", "zeroplan.fit/1")
      .set("version", answer.version)
      .set("inputs", inputs_data(answer.model, answer.resolved))
      .set("approximations", approximations_data(answer.prediction.program().approximations))
      .set("assumed", assumed_data(answer.resolved.assumptions))
      .set("notes", notes_data(answer.model, answer.resolved))
      .set("result", figures_data(answer.predicted()).set("suggestions", suggestions(answer)));
}

}  // namespace zeroplan::reports
