#include <doctest/doctest.h>

#include <string>

#include "planner/error.hpp"
#include "tests/accuracy/published_runs.hpp"

using namespace zeroplan;
using namespace zeroplan::accuracy;

namespace {

constexpr const char* kVtrainHeader =
    "part,params_B,n_gpus,global_batch,micro_batch,hidden,heads,layers,seq_len,tp,dp,pp,step_time_s\n";

std::string refusal(const std::string& text) {
  try {
    read_runs(text, "runs.csv");
  } catch (const ConfigurationError& error) {
    std::string all;
    for (const Problem& problem : error.problems()) all += problem.text() + '\n';
    return all;
  }
  return "accepted";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// The header and the first row of measured_runs.csv.
std::string first_measured() {
  const std::string text = test::read_file(test::runs_path("measured_runs.csv"));
  return text.substr(0, text.find('\n', text.find('\n') + 1) + 1);
}

}  // namespace

TEST_CASE("the published runs are read whole") {
  CHECK(test::measured_runs().size() == 877);
  CHECK(test::vtrain_runs().size() == 1009);
  std::size_t with_memory = 0;
  std::size_t out_of_memory = 0;
  for (const Run& run : test::measured_runs()) {
    with_memory += run.memory ? 1 : 0;
    out_of_memory += run.outcome == Outcome::out_of_memory ? 1 : 0;
  }
  CHECK(with_memory == 251);
  CHECK(out_of_memory == 46);
}

TEST_CASE("a measured row, field by field") {
  const Run run = test::measured_run("bigscience-tr3m-1B3-001");
  CHECK(run.source == "bigscience-tr3m-1B3");
  CHECK(run.quality == 'A');
  CHECK(run.layers == 24);
  CHECK(run.vocabulary == 50257);
  CHECK(run.gpus_per_node == 4);
  CHECK(run.gpu_memory_gb == 32);
  CHECK(run.gradient_accumulation == 64);
  REQUIRE(run.memory.has_value());
  CHECK(run.memory->kind == MemoryKind::nvidia_smi);
  CHECK(run.memory->low_gib == 14.435);
  CHECK(run.memory->high_gib == 16.5);
  CHECK_FALSE(run.memory->is_upper_bound);
  CHECK(run.step_seconds == 29);
  CHECK(test::measured_run("deepspeed-tutorial-004").memory->is_upper_bound);
  CHECK_FALSE(test::measured_run("deepspeed-tutorial-001").memory.has_value());
}

TEST_CASE("a vtrain row, with what all of them share") {
  const Run& run = test::vtrain_runs().front();
  CHECK(run.source == "vtrain-multi");
  CHECK(run.id == "vtrain-multi-line-2");
  CHECK(run.ffn == 12288);
  CHECK(run.vocabulary == 50257);
  CHECK(run.gpus == 64);
  CHECK(run.gpus_per_node == 8);
  CHECK(run.zero_stage == 0);
  CHECK(run.step_seconds == 3.5665);
}

TEST_CASE("wrong values are named by file, line and column") {
  const std::string header(kVtrainHeader);
  CHECK(refusal(header + "multi,3.6,64,512,8,3072,32,30,2048,1,64,1,3.5\n") == "accepted");
  CHECK(refusal(header + "multi,3.6,64x,512,8,3072,32,30,2048,1,0,1,3.5\n") ==
        "runs.csv:2: n_gpus: found \"64x\", expected a whole number from 1 to 1000000000\n"
        "runs.csv:2: dp: found \"0\", expected a whole number from 1 to 1000000000\n");
  CHECK(refusal(header + "multi,3.6,64,512,8,3072,32,30,2048,1,64,1,-1\n") ==
        "runs.csv:2: step_time_s: found \"-1\", expected a number above 0\n");
  CHECK(refusal(header + "multi,3.6,64,512,8,3072,32,30,2048,1,64,1,nan\n") ==
        "runs.csv:2: step_time_s: found \"nan\", expected a number above 0\n");
}

TEST_CASE("a header tells the two forms apart; a column that lacks is one problem") {
  CHECK(refusal("a,b\n1,2\n").starts_with("runs.csv:1: found a header with neither"));
  const std::string rows =
      "multi,3.6,64,512,8,3072,32,30,2048,1,64,1,3.5\nmulti,3.6,64,512,8,3072,32,30,2048,1,64,1,4\n";
  CHECK(refusal(replaced(kVtrainHeader, "dp", "ddp") + rows) ==
        "runs.csv:1: dp: the column is missing\nruns.csv:1: ddp: unknown column; nearest: dp\n");
  CHECK(refusal(first_measured()) == "accepted");
  CHECK(refusal(replaced(first_measured(), ",ok,,A,", ",great,,D,")) ==
        "runs.csv:2: outcome: found \"great\", expected ok, OOM or fail\n"
        "runs.csv:2: quality: found \"D\", expected A, B or C\n");
}
