#include "reports/compare_report.hpp"

#include <fmt/format.h>

#include "reports/inputs.hpp"
#include "reports/numbers.hpp"

namespace zeroplan::reports {
namespace {

using program::Group;
using solve::Strategy;

std::string verdict_text(predict::Verdict verdict) {
  switch (verdict) {
    case predict::Verdict::fits:
      return "yes";
    case predict::Verdict::tight:
      return "tight";
    case predict::Verdict::does_not_fit:
      return "no";
  }
  return {};
}

Data row_data(const Strategy& strategy) {
  Data row = Data::map();
  row.set("strategy", strategy.name).set("possible", strategy.prediction.has_value());
  if (!strategy.prediction) return row.set("reason", strategy.not_possible);
  const describe::Plan& plan = strategy.plan;
  const predict::Prediction& prediction = *strategy.prediction;
  return row.set("data_parallel", plan.data_parallel)
      .set("tensor_parallel", plan.tensor_parallel)
      .set("zero_stage", plan.zero_stage)
      .set("global_batch", plan.global_batch())
      .set("model_state_bytes", prediction.model_state_bytes)
      .set("peak_bytes", prediction.peak_bytes)
      .set("capacity_bytes", prediction.capacity_bytes)
      .set("fits", prediction.fits())
      .set("verdict", predict::name_of(prediction.verdict))
      .set("traffic_psi", prediction.traffic_psi)
      .set("data_parallel_traffic_bytes", prediction.traffic.sent_bytes(Group::data_parallel))
      .set("tensor_parallel_traffic_bytes", prediction.traffic.sent_bytes(Group::tensor_parallel))
      .set("host_bytes_per_gpu", prediction.host_bytes_per_device)
      .set("host_bytes_per_node", prediction.host_bytes_per_node);
}

std::vector<Cell> row_cells(const Strategy& strategy) {
  if (!strategy.prediction) {
    return {strategy.name, std::string("-"), {}, {}, {}, std::string("-"), {}, {}, {}, {}};
  }
  const describe::Plan& plan = strategy.plan;
  const predict::Prediction& prediction = *strategy.prediction;
  const auto host = static_cast<double>(prediction.host_bytes_per_node);
  const double model_traffic = prediction.traffic.sent_bytes(Group::tensor_parallel);
  return {strategy.name,
          fmt::format("{} x {}", plan.data_parallel, plan.tensor_parallel),
          plan.global_batch(),
          Gibibytes{static_cast<double>(prediction.model_state_bytes)},
          Gibibytes{static_cast<double>(prediction.peak_bytes)},
          verdict_text(prediction.verdict),
          Real{prediction.traffic_psi, 2},
          Gigabytes{prediction.traffic.sent_bytes(Group::data_parallel)},
          model_traffic > 0 ? Cell(Gigabytes{model_traffic}) : Cell(),
          host > 0 ? Cell(Gigabytes{host}) : Cell()};
}

}  // namespace

Report compare_report(std::string_view version, const describe::Model& model,
                      const describe::ResolvedPlan& resolved, const std::vector<Strategy>& strategies) {
  Report report;
  Data rows = Data::list();
  Table table{{{"strategy", false},
               {"dp x tp"},
               {"batch"},
               {"states GiB"},
               {"peak GiB"},
               {"fits", false},
               {"DP Psi"},
               {"DP GB"},
               {"MP GB"},
               {"host GB/node"}},
              {},
              {}};
  std::vector<Block> reasons;
  for (const Strategy& strategy : strategies) {
    rows.add(row_data(strategy));
    table.rows.push_back(row_cells(strategy));
    if (!strategy.prediction) {
      reasons.emplace_back(
          Paragraph{fmt::format("{} is not possible: {}.", strategy.name, strategy.not_possible)});
    }
  }
  add_inputs(report.blocks, model, resolved);
  report.blocks.emplace_back(std::move(table));
  report.blocks.emplace_back(
      Paragraph{"Memory is per GPU, traffic is sent per GPU and step. Psi: elements per parameter of the "
                "rank, as in the ZeRO paper."});
  for (Block& reason : reasons) report.blocks.push_back(std::move(reason));
  add_assumptions(report.blocks, model, resolved);
  report.data = Data::map()
                    .set("schema", "zeroplan.compare/1")
                    .set("version", version)
                    .set("inputs", inputs_data(model, resolved))
                    .set("assumed", assumed_data(resolved.assumptions))
                    .set("result", Data::map().set("strategies", std::move(rows)));
  report.rows = "result.strategies";
  return report;
}

}  // namespace zeroplan::reports
