#include "reports/fit_report.hpp"

#include "reports/fit_tables.hpp"
#include "reports/inputs.hpp"
#include "reports/speed.hpp"
#include "reports/verdict.hpp"

namespace zeroplan::reports {

Report fit_report(const FitAnswer& answer) {
  const predict::Prediction& prediction = answer.prediction;
  Report report;
  report.data = fit_data(answer);
  const Data& result = *report.data.find("result");
  std::vector<Block>& blocks = report.blocks;
  add_inputs(blocks, answer.model, answer.resolved);
  add_verdict(blocks, prediction);
  if (prediction.program().states_only) {
    blocks.emplace_back(
        Paragraph{"Only the number of parameters is known, so this is memory of the model states and their "
                  "traffic only; activations and time are not in it."});
  }
  blocks.emplace_back(memory_table(result));
  blocks.emplace_back(Paragraph{peak_sentence(*result.find("peak_at"))});
  blocks.emplace_back(live_table(list_at(result, "alive_at_peak")));
  add_host(blocks, result, answer.resolved.cluster.device);
  Table moved = traffic_table(result);
  if (moved.rows.empty()) {
    blocks.emplace_back(Paragraph{"Nothing moves between GPUs."});
  } else {
    blocks.emplace_back(std::move(moved));
  }
  if (!prediction.program().states_only) {
    blocks.emplace_back(Paragraph{flops_sentence(result)});
    add_speed(blocks, answer.predicted(), result);
  }
  if (prediction.does_not_fit()) add_suggestions(blocks, list_at(result, "suggestions"));
  add_assumptions(blocks, answer.model, answer.resolved);
  return report;
}

}  // namespace zeroplan::reports
