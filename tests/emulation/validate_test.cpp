#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/process.hpp"

// `zeroplan validate --device cuda` as a user runs it, on emulated GPUs.

using nlohmann::json;
using zeroplan::test::CommandResult;
using zeroplan::test::run_shell;

namespace {

CommandResult run(const std::string& words, const std::string& environment = "") {
  return run_shell(environment +
                   " '" ZEROPLAN_EMULATED_PROGRAM
                   "' validate layers=2,hidden=32,heads=2,vocab=101 --seq 16 "
                   "--dtype fp32 --steps 2 --device cuda -o json " +
                   words);
}

}  // namespace

TEST_CASE("validate on emulated GPUs: what was planned is what is measured, on one and on several") {
  for (const char* plan : {"--gpus 1", "--gpus 1 --recompute full", "--gpus 2 --zero 3 --offload optimizer",
                           "--gpus 4 --zero 2 --tp 2 --grad-accum 2",
                           "--gpus 2 --zero 1 --grad-accum 2 --dropout --attention materialized"}) {
    CAPTURE(plan);
    const CommandResult result = run(plan, "ZEROPLAN_EMULATED_POLICY=random ZEROPLAN_EMULATED_SEED=3");
    CAPTURE(result.err);
    CAPTURE(result.out);
    REQUIRE(result.exit_code == 0);
    const json record = json::parse(result.out);
    CHECK(record["outcome"] == "agrees");
    CHECK(
        record["measured"]["device"].get<std::string>().starts_with("cuda:0 (GPU, compute capability 9.0)"));
  }
}

TEST_CASE("validate on emulated GPUs: what the machine does not have is exit code 3, what fails there 4") {
  const auto reason = [](const CommandResult& result) {
    return json::parse(result.out)["reason"].get<std::string>();
  };
  CommandResult result = run("--gpus 1", "ZEROPLAN_EMULATED_DRIVER=35");
  CHECK(result.exit_code == 3);
  CHECK(reason(result).find("nvidia-smi") != std::string::npos);
  result = run("--gpus 1", "ZEROPLAN_EMULATED_SM=70");
  CHECK(result.exit_code == 3);
  CHECK(reason(result).find("compute capability 7.0") != std::string::npos);
  result = run("--gpus 2", "ZEROPLAN_EMULATED_GPUS=1");
  CHECK(result.exit_code == 3);
  CHECK(reason(result).find("there is no GPU 1") != std::string::npos);
}
