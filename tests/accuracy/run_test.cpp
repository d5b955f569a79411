#include <doctest/doctest.h>

#include <string>

#include "planner/error.hpp"
#include "tests/accuracy/published_runs.hpp"

using namespace zeroplan;
using namespace zeroplan::accuracy;

namespace {

// The columns that tests/tools/label_runs.py adds, and what the first row has in them.
constexpr const char* kLabels =
    ",hw,pcie,nics,node_gbits_per_s,block,tied_embeddings,engine,overlap,dropout,partition_activations,shard_"
    "ranks,"
    "plan_reason,mem_upper_bound,scored,scored_reason";
constexpr const char* kFirstLabels = ",dgx-h100,,,,mpt,,llm-foundry,,no,,,,,yes,\n";

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

TEST_CASE("a vtrain row, by its line in the source") {
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

TEST_CASE("what a run's plan is taken to be stands in columns") {
  const Run run = test::measured_run("bigscience-gpt2-054");
  CHECK(run.hardware == "jean-zay-v100");
  CHECK(run.block == Block::gpt2);
  CHECK(run.engine == "deepspeed");
  CHECK(run.overlap == false);
  CHECK(run.dropout == true);
  CHECK(test::measured_run("internevo-tgs-016").shard_ranks == 4);
  // Of tiny models that wait for their host the memory is scored, and of compiled steps nothing.
  const Run tiny = test::measured_run("megatron-lm-golden-016");
  CHECK(tiny.memory.has_value());
  CHECK_FALSE(tiny.step_seconds.has_value());
  CHECK(tiny.not_scored.empty());
  CHECK(test::measured_run("deepcompile-fig-001").not_scored == "a compiled step");
}

TEST_CASE("wrong values are named by file, line and column") {
  CHECK(refusal(first_measured()) == "accepted");
  CHECK(refusal(replaced(first_measured(), ",512,8,H100-80GB,", ",512x,0,H100-80GB,")) ==
        "runs.csv:2: n_gpus: found \"512x\", expected a whole number from 1 to 1000000000\n"
        "runs.csv:2: gpus_per_node: found \"0\", expected a whole number from 1 to 1000000000\n");
  CHECK(refusal(replaced(first_measured(), ",16.319,1007,ok", ",nan,-1,ok")) ==
        "runs.csv:2: norm_step_time_s: found \"nan\", expected a number above 0\n"
        "runs.csv:2: norm_tokens_per_s_per_gpu: found \"-1\", expected a number above 0\n");
}

TEST_CASE("columns that say how a run is planned may be left out, and their values are checked") {
  // The header and the first row of the file as it was collected: none of the columns made for the planner.
  std::string plain = first_measured();
  plain = replaced(plain, kLabels, "");
  plain = replaced(plain, kFirstLabels, "\n");
  CHECK(refusal(plain) == "accepted");
  const Run run = read_runs(plain, "runs.csv").front();
  CHECK_FALSE(run.engine.has_value());
  CHECK(run.hardware.empty());
  CHECK(run.step_seconds.has_value());
  const auto changed = [](const std::string& from, const std::string& to) {
    return refusal(replaced(first_measured(), from, to));
  };
  CHECK(changed(",llm-foundry,,no,,", ",fsdp9,maybe,no,,")
            .starts_with("runs.csv:2: engine: found \"fsdp9\", expected one of deepspeed"));
  CHECK(changed(",llm-foundry,,no,,", ",llm-foundry,maybe,no,,") ==
        "runs.csv:2: overlap: found \"maybe\", expected yes, no, or nothing\n");
  CHECK(changed(",dgx-h100,,,,mpt,", ",dgx-h1,maybe,0,-1,mtp,") ==
        "runs.csv:2: block: found \"mtp\", expected one of gpt2, opt, mpt, llama, qwen, nemotron, falcon\n"
        "runs.csv:2: hw: found \"dgx-h1\", expected the name of a machine (zeroplan hw list)\n"
        "runs.csv:2: pcie: found \"maybe\", expected yes, no, or nothing\n"
        "runs.csv:2: nics: found \"0\", expected a whole number from 1 to 1024\n"
        "runs.csv:2: node_gbits_per_s: found \"-1\", expected a number above 0\n");
  CHECK(changed(",yes,\n", ",often,\n")
            .starts_with("runs.csv:2: scored: found \"often\", expected yes, memory, time or no\n"));
  CHECK(changed(",yes,\n", ",no,\n") ==
        "runs.csv:2: scored: found \"no\", expected a reason in the column scored_reason, because not "
        "everything is scored\n");
  CHECK(read_runs(replaced(first_measured(), ",yes,\n", ",no,mine\n"), "runs.csv").front().not_scored ==
        "mine");
  CHECK_FALSE(
      read_runs(replaced(first_measured(), ",yes,\n", ",memory,mine\n"), "runs.csv").front().step_seconds);
}

TEST_CASE("a column that lacks is one problem") {
  CHECK(refusal("a,b\n1,2\n") ==
        "runs.csv:1: found a header without \"source\", expected the columns of measured_runs.csv\n");
  CHECK(refusal(replaced(first_measured(), ",dp,", ",ddp,")) ==
        "runs.csv:1: dp: the column is missing\nruns.csv:1: ddp: unknown column; nearest: dp\n");
  CHECK(refusal(replaced(first_measured(), ",ok,,A,", ",great,,D,")) ==
        "runs.csv:2: outcome: found \"great\", expected ok, OOM or fail\n"
        "runs.csv:2: quality: found \"D\", expected A, B or C\n");
}
