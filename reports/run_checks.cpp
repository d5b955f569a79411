#include "reports/run_checks.hpp"

#include <fmt/format.h>

namespace zeroplan::reports {
namespace {

using program::Measurement;

ComparedText finite_losses(const Measurement& measurement) {
  const std::string expected = "finite and above 0 in every step";
  ComparedText row{"training.losses", "losses", expected, expected};
  if (const auto& step = measurement.steps.first_without_loss()) {
    row.measured = fmt::format("{} in step {}", step->loss, step->step);
  }
  return row;
}

ComparedText updates(const Measurement& measurement) {
  const std::string expected = "made";
  ComparedText row{"training.updates", "updates", expected, expected};
  const program::StepLog& steps = measurement.steps;
  if (const auto& step = steps.first_overflow()) {
    row.measured = fmt::format("gradients are not finite from step {} on, at loss scale {:g}", step->step,
                               step->loss_scale);
  } else if (const auto& still = steps.first_without_gradient()) {
    row.measured = fmt::format("the gradient's norm is {} in step {}", still->gradient_norm, still->step);
  } else if (steps.measured() > 0 && steps.skipped() == steps.measured()) {
    row.measured = fmt::format("none: each measured step was skipped, the last at loss scale {:g}",
                               steps.back().loss_scale);
  }
  return row;
}

ComparedText barriers(const Measurement& measurement) {
  const std::string expected = "all ranks wait for the last";
  ComparedText row{"training.barriers", "barriers", expected, expected};
  for (std::size_t m = 0; m < program::kMeetings; ++m) {
    for (std::size_t a = 0; a < measurement.of_rank.size(); ++a) {
      for (std::size_t b = 0; b < measurement.of_rank.size(); ++b) {
        const program::RankMeasurement& early = measurement.of_rank[a];
        const program::RankMeasurement& late = measurement.of_rank[b];
        if (early.host != late.host || early.meetings[m].left >= late.meetings[m].came) continue;
        row.measured = fmt::format("rank {} went on {} ns before rank {} came", a,
                                   late.meetings[m].came - early.meetings[m].left, b);
        return row;
      }
    }
  }
  return row;
}

void add_replicas(std::vector<ComparedText>& rows, std::string key, std::string title,
                  const program::ReplicaCheck& check) {
  if (check.compared == 0) return;
  const std::string expected = "the same";
  rows.push_back({"training." + std::move(key), std::move(title), expected,
                  check.difference.empty() ? expected : check.difference});
}

}  // namespace

std::vector<ComparedText> check_run(const Measurement& measurement) {
  std::vector<ComparedText> rows{finite_losses(measurement), updates(measurement)};
  if (measurement.of_rank.size() > 1) rows.push_back(barriers(measurement));
  const program::ReplicaChecks& replicas = measurement.replicas;
  add_replicas(rows, "data_parallel_replicas", "parameters of data-parallel ranks", replicas.data_parallel);
  add_replicas(rows, "tensor_parallel_replicas", "parameters that tensor-parallel ranks share",
               replicas.tensor_parallel);
  add_replicas(rows, "masters", "parameters and their fp32 masters, rounded", replicas.masters);
  return rows;
}

}  // namespace zeroplan::reports
