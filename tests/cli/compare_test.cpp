#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/command.hpp"

using namespace zeroplan::test;
using nlohmann::json;

namespace {

json answer_of(const std::string& line) {
  const CommandResult result = run_command(line + " -o json");
  CAPTURE(line);
  CAPTURE(result.err);
  REQUIRE(result.exit_code != 2);
  return json::parse(result.out);
}

// Every row of a comparison is what `fit` says to the row's own command.
void check_rows(const std::string& line) {
  const json answer = answer_of(line);
  std::size_t possible = 0;
  for (const json& row : answer["result"]["strategies"]) {
    if (!row["possible"].get<bool>()) continue;
    ++possible;
    const std::string command = row["command"];
    CAPTURE(command);
    REQUIRE(command.starts_with("zeroplan fit "));
    const json result = answer_of(command.substr(std::string("zeroplan ").size()))["result"];
    for (const char* key : {"peak_bytes", "model_state_bytes", "capacity_bytes", "step_seconds",
                            "traffic_psi", "verdict", "tokens_per_second"}) {
      CAPTURE(key);
      CHECK(row[key] == result[key]);
    }
  }
  CHECK(possible >= 3);
}

}  // namespace

TEST_CASE("every row of compare is the answer of fit to the row's command") {
  // The engine's default of --overlap differs between stages.
  check_rows("compare llama2-7b --hw dgx-a100 --nodes 2 --engine deepspeed --micro-batch 2");
  check_rows("compare llama2-7b --hw dgx-a100 --nodes 2 --engine llm-foundry --global-batch 64");
  check_rows("compare llama2-70b --hw dgx-h100 --nodes 4");
  check_rows("compare llama2-13b --hw dgx-a100 --nodes 2 --tp 4 --global-batch 64 --grad-accum 4");
  check_rows("compare gpt2-xl --hw dgx2 --tp 5 --gpus 10 --recompute full --dropout=on");
  check_rows("compare gpt2-xl --hw dgx2 --offload optimizer");
  check_rows("compare llama2-7b --hw dgx-a100 --tp 4 --offload-activations");
  check_rows("compare params=7.5B --hw v100-32gb --gpus 64");
  check_rows("compare llama2-7b --hw a100 --nodes 2 --gpus 16");
}

// A bucket in elements has no option of the command line; of fewer tensor-parallel ranks each has more of the
// gradient, so the bucket is less often capped at it.
TEST_CASE("the rows' commands say what a DeepSpeed configuration says") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("ds.json")) << R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 60000000}})";
  const std::string file = " -f " + folder.file("ds.json");
  check_rows("compare gpt2 --hw dgx-a100" + file);
  check_rows("compare gpt2 --hw dgx-a100 --tp 4" + file);
}

TEST_CASE("compare names the fastest row that fits, with its command") {
  const json answer = answer_of("compare llama2-70b --hw dgx-h100 --nodes 4");
  const std::string fastest = answer["result"]["fastest"];
  std::string command;
  double most = 0;
  for (const json& row : answer["result"]["strategies"]) {
    if (row["fits"] != true || row["tokens_per_second"].get<double>() <= most) continue;
    most = row["tokens_per_second"];
    command = row["command"];
    CHECK(row["fits"].get<bool>());
    if (row["strategy"] == fastest) CHECK(row["command"] == command);
  }
  REQUIRE(most > 0);
  std::string table = run_command("compare llama2-70b --hw dgx-h100 --nodes 4").out;
  const std::string goes_on = " \\\n      ";  // a long command, as a shell reads it
  for (std::size_t at = 0; (at = table.find(goes_on, at)) != std::string::npos;) {
    table.replace(at, goes_on.size(), " ");
  }
  CHECK(table.find("The fastest of those that fit, by tokens/s, is " + fastest) != std::string::npos);
  CHECK(table.find("  " + command + "\n") != std::string::npos);
}
