#include "planner/accuracy/score.hpp"

#include <doctest/doctest.h>

#include "planner/accuracy/modelled_run.hpp"
#include "tests/accuracy/published_runs.hpp"

using namespace zeroplan;
using namespace zeroplan::accuracy;

namespace {

predict::Prediction prediction_with_overheads() {
  predict::Prediction prediction;
  prediction.stages.front().memory.peak = 1000;
  prediction.overheads = {
      {"context", 100, ""}, {"library_workspace", 10, ""}, {"communicators", 50, ""}, {"allocator", 7, ""}};
  return prediction;
}

Run run_with_memory(double low, double high) {
  Run run = test::measured_run("bigscience-tr3m-1B3-001");
  run.memory = MeasuredMemory{MemoryKind::nvidia_smi, low, high, false};
  return run;
}

}  // namespace

TEST_CASE("each kind of memory holds what its tool shows") {
  const predict::Prediction prediction = prediction_with_overheads();
  CHECK(predicted_memory(prediction, MemoryKind::allocated) == 1010);
  CHECK(predicted_memory(prediction, MemoryKind::active) == 1010);
  CHECK(predicted_memory(prediction, MemoryKind::reserved) == 1017);
  CHECK(predicted_memory(prediction, MemoryKind::unspecified) == 1017);
  CHECK(predicted_memory(prediction, MemoryKind::nvidia_smi) == 1167);
}

TEST_CASE("runs are counted by source, GPU and stage, and by the reason they are left out") {
  Run other = run_with_memory(1, 2);
  other.source = "elsewhere";
  other.pipeline_parallel = 2;
  Run doubtful = run_with_memory(1, 2);
  doubtful.quality = 'C';
  const Accuracy accuracy = score_runs({run_with_memory(0.001, 30), other, doubtful}, "AB");
  CHECK(accuracy.total.runs == 2);
  CHECK(accuracy.total.used == 1);
  CHECK(accuracy.total.not_modelled.at("pipeline parallelism") == 1);
  CHECK(accuracy.total.memory.runs == 1);
  CHECK(accuracy.total.memory.mean == 0);  // inside the interval
  REQUIRE(accuracy.groups.size() == 2);
  CHECK(accuracy.groups[0].gpu == "V100-32GB");
  CHECK(accuracy.groups[0].stage == "1");
  CHECK(accuracy.sources[1].source == "elsewhere");
  CHECK(accuracy.sources[1].used == 0);
  CHECK(score_runs({doubtful}, "ABC").total.runs == 1);
}

TEST_CASE("verdicts: what ran and what did not, against what was predicted") {
  const Run ran = run_with_memory(15, 16);
  Run out = ran;
  out.outcome = Outcome::out_of_memory;
  out.memory.reset();
  Run large = out;
  large.layers = 2400;
  Run without_memory_size = out;
  without_memory_size.gpu_memory_gb.reset();
  const Accuracy accuracy = score_runs({ran, out, large, without_memory_size}, "A");
  const VerdictCounts& verdicts = accuracy.total.verdicts;
  CHECK(verdicts.ran_predicted_yes == 1);
  CHECK(verdicts.ran_predicted_no == 0);
  CHECK(verdicts.out_predicted_yes == 1);
  CHECK(verdicts.out_predicted_no == 1);
  REQUIRE(accuracy.wrong_verdicts.size() == 1);
  CHECK_FALSE(accuracy.wrong_verdicts[0].ran);
  CHECK(verdicts.right() == 2);
  CHECK(verdicts.wrong() == 1);
}

// Files of runs do not state the host's memory; of nodes without a preset nobody does.
TEST_CASE("of a run whose host memory nobody described, the verdict is neither right nor wrong") {
  Run offloaded = run_with_memory(15, 16);
  offloaded.gpus_per_node = 2;
  offloaded.offload = "optimizer";
  const Accuracy accuracy = score_runs({offloaded}, "A");
  REQUIRE(accuracy.total.used == 1);
  const VerdictCounts& verdicts = accuracy.total.verdicts;
  CHECK(verdicts.ran_not_said == 1);
  CHECK(verdicts.right() + verdicts.wrong() == 0);
  CHECK(accuracy.wrong_verdicts.empty());
}

TEST_CASE("the largest error comes first, and an upper bound is not scored") {
  Run bound = run_with_memory(15, 16);
  bound.memory->is_upper_bound = true;
  Run near = run_with_memory(10, 12);
  Run far = run_with_memory(100, 120);
  for (Run* run : {&bound, &near, &far}) run->step_seconds.reset();
  near.id = "near";
  far.id = "far";
  const Accuracy accuracy = score_runs({bound, near, far}, "A");
  REQUIRE(accuracy.figures.size() == 2);
  CHECK(accuracy.figures[0].id == "far");
  REQUIRE(accuracy.groups[0].worst_memory.has_value());
  CHECK(accuracy.groups[0].worst_memory->id == "far");
  CHECK(accuracy.figures[0].error == doctest::Approx(accuracy.figures[0].predicted / 100 - 1));
}

TEST_CASE("a step's time is scored against the measured one") {
  Run run = run_with_memory(15, 16);
  run.memory.reset();
  run.step_seconds = 1;
  const Accuracy first = score_runs({run}, "A");
  REQUIRE(first.figures.size() == 1);
  CHECK(first.figures[0].measure == Measure::time);
  run.step_seconds = 2 * first.figures[0].predicted;
  const Accuracy second = score_runs({run}, "A");
  CHECK(second.figures[0].error == doctest::Approx(-0.5));
  CHECK(second.total.time.runs == 1);
  CHECK(second.total.memory.runs == 0);
}
