#include "planner/accuracy/pace.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <variant>
#include <vector>

#include "planner/accuracy/score.hpp"
#include "tests/accuracy/published_runs.hpp"

using namespace zeroplan;
using namespace zeroplan::accuracy;

namespace {

struct Row {
  ModelledRun modelled;
  program::StepProgram program;
  double measured = 0;
  double shipped = 0;  // predicted with the shipped constants
};

const std::vector<Row>& rows() {
  static const std::vector<Row> all = [] {
    std::vector<Row> result;
    for (const std::vector<Run>& runs : {test::measured_runs(), test::vtrain_runs()}) {
      for (const Run& run : runs) {
        if (!run.step_seconds || run.quality == 'C') continue;
        auto modelled = model_run(run);
        auto* described = std::get_if<ModelledRun>(&modelled);
        if (described == nullptr) continue;
        auto prediction = predict::predict(described->model, described->plan, described->cluster);
        const double seconds = prediction.time.seconds;
        result.push_back({std::move(*described), std::move(prediction.stages.front().program),
                          *run.step_seconds, seconds});
      }
    }
    return result;
  }();
  return all;
}

}  // namespace

TEST_CASE("with the shipped constants a step takes what is predicted") {
  for (const Row& row : rows()) {
    CHECK(step_seconds(row.modelled, row.program, shipped_pace(row.modelled)) ==
          doctest::Approx(row.shipped).epsilon(1e-9));
  }
}

TEST_CASE("neighbours are in one fold, and every fold has runs") {
  std::array<std::size_t, kFolds> runs{};
  for (const Row& row : rows()) {
    const std::size_t fold = fold_of(row.modelled);
    REQUIRE(fold < kFolds);
    ++runs[fold];
    ModelledRun neighbour = row.modelled;
    neighbour.model.layers += 4;
    neighbour.plan.micro_batch *= 2;
    neighbour.plan.tensor_parallel = 2;
    neighbour.cluster.nodes *= 2;
    CHECK(fold_of(neighbour) == fold);
  }
  for (const std::size_t count : runs) CHECK(10 * count > rows().size());
}

// Constants of a fold were fitted to the others: on those they are as good as the shipped ones, which had to
// serve the fold besides.
TEST_CASE("the constants of a fold are fitted to the other folds") {
  for (std::size_t fold = 0; fold < kFolds; ++fold) {
    double fitted = 0, shipped = 0, count = 0;
    for (const Row& row : rows()) {
      if (fold_of(row.modelled) == fold || row.shipped <= 0) continue;
      const double seconds = step_seconds(row.modelled, row.program, pace_without(fold));
      fitted += std::min(0.3, std::abs(seconds / row.measured - 1));
      shipped += std::min(0.3, std::abs(row.shipped / row.measured - 1));
      ++count;
    }
    CAPTURE(fold);
    CHECK(fitted / count <= shipped / count + 0.01);
  }
}

TEST_CASE("runs that a prediction was made from are shown and not counted") {
  Run run = test::measured_run("bigscience-tr3m-1B3-001");
  Run made_from = run;
  made_from.not_evidence = "a rate was worked out from it";
  const Accuracy accuracy = score_runs({run, made_from, made_from}, "A");
  CHECK(accuracy.total.runs == 1);
  CHECK(accuracy.total.time.runs == 1);
  CHECK(accuracy.total.held_out.runs == 1);
  REQUIRE(accuracy.sources.size() == 2);
  CHECK(accuracy.sources[1].not_evidence == made_from.not_evidence);
  CHECK(accuracy.sources[1].runs == 2);
  CHECK(accuracy.sources[1].time.runs == 2);
  CHECK(accuracy.sources[1].held_out.runs == 0);
  const std::vector<Run> paper =
      read_runs(test::read_file(test::runs_path("zero_paper_runs.csv")), "zero_paper_runs.csv");
  REQUIRE(!paper.empty());
  for (const Run& bar : paper) CHECK(!bar.not_evidence.empty());
}
