#include <doctest/doctest.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/command.hpp"

using namespace zeroplan::test;
using nlohmann::json;

namespace {

const std::vector<std::string> kPlans{
    "gpt2 --hw v100-32gb --gpus 8 --zero 1",
    "gpt2-xl --hw dgx2 --zero 3 --recompute full --micro-batch 2 --grad-accum 2",
    "llama2-7b --hw dgx-a100 --tp 4 --zero 2 --recompute full --partition-activations --offload-activations",
    "llama2-13b --hw dgx-a100 --zero 3 --offload all --attention materialized --tokens 1T --price 2.5",
    "mixtral-8x7b --hw dgx-h100 --nodes 2 --zero 3 --reserve 2GiB",
    "params=7.5B --hw v100-32gb --gpus 64 --zero 2 --offload optimizer",
    "gpt2 --hw v100-32gb --gpus 1 --engine deepspeed --contiguous-memory=off",
};

std::vector<std::string> keys() {
  std::vector<std::string> names;
  const json listed = json::parse(run_command("explain -o json").out);
  for (const json& key : listed["keys"]) names.push_back(key["key"]);
  return names;
}

json at_dotted(json value, const std::string& dotted) {
  std::string pointer = "/" + dotted;
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  return value[json::json_pointer(pointer)];
}

}  // namespace

// The explanation is read from the step program term by term, the answer of fit by the readers in
// planner/predict: two ways to the same number.
TEST_CASE("every number is the sum of its terms and the number of fit") {
  REQUIRE(keys().size() >= 20);
  for (const std::string& plan : kPlans) {
    const json fit = json::parse(run_command(fmt::format("fit {} -o json", plan)).out);
    for (const std::string& key : keys()) {
      CAPTURE(plan);
      CAPTURE(key);
      const CommandResult result = run_command(fmt::format("explain {} {} -o json", key, plan));
      CAPTURE(result.err);
      const bool of_model = key == "parameters" || key == "active_parameters";
      const json expected = of_model ? fit["inputs"]["model"][key] : at_dotted(fit["result"], key);
      if (expected.is_null()) {
        CHECK(result.exit_code == 2);
        CHECK(result.err.starts_with("zeroplan: error: KEY: " + key + " has no value: "));
        continue;
      }
      REQUIRE(result.exit_code == 0);
      const json answer = json::parse(result.out)["result"];
      CHECK(answer["value"] == expected);
      double sum = 0;
      for (const json& term : answer["terms"]) sum += term["value"].get<double>();
      CHECK(sum == doctest::Approx(expected.get<double>()).epsilon(1e-12));
      CHECK(!answer["formula"].get<std::string>().empty());
      CHECK(!answer["source"].get<std::string>().empty());
    }
  }
}

// fp16 mixed precision with Adam: 2 + 2 + 4 + 4 + 4 bytes a parameter (ZeRO, arXiv 1910.02054, Section 3.1).
TEST_CASE("the terms of the model states are those of the paper") {
  const json answer = json::parse(
      run_command("explain model_state_bytes params=64M --hw v100-32gb --gpus 1 -o json").out)["result"];
  CHECK(answer["value"] == 16 * 64000000);
  std::vector<std::int64_t> bytes_per_parameter;
  for (const json& term : answer["terms"])
    bytes_per_parameter.push_back(term["value"].get<std::int64_t>() / 64000000);
  REQUIRE(bytes_per_parameter == std::vector<std::int64_t>{2, 2, 4, 4, 4});
  CHECK(answer["terms"][0]["arithmetic"] == "1 x 64,000,000 x 2 B");
}

TEST_CASE("explain --program shows the step with what each instruction waits for") {
  const std::string plan = "gpt2 --hw dgx-a100 --zero 3 --recompute full --offload optimizer";
  const CommandResult table = run_command("explain --program " + plan);
  REQUIRE(table.exit_code == 0);
  CHECK(table.out.find("phase backward") != std::string::npos);
  CHECK(table.out.find("waits for the ") != std::string::npos);
  std::istringstream lines(table.out);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 100);

  const json record = json::parse(run_command("explain --program " + plan + " -o json").out);
  CHECK(record["schema"] == "zeroplan.program/1");
  const json& code = record["code"];
  REQUIRE(code.size() > 100);
  std::size_t waits = 0;
  for (const json& instruction : code) {
    for (const json& operand : instruction["operands"]) {
      CHECK(operand["buffer"].get<std::size_t>() < record["buffers"].size());
    }
    for (const json& wait : instruction["waits"]) {
      REQUIRE(!wait["instructions"].empty());
      for (const json& other : wait["instructions"]) {
        CHECK(code[other.get<std::size_t>()]["stream"] != instruction["stream"]);
      }
      ++waits;
    }
  }
  CHECK(waits >= 10);
  CHECK(run_command("explain --program").exit_code == 2);
  CHECK(run_command("explain --program gpt7 --hw dgx-a100").exit_code == 2);
}
