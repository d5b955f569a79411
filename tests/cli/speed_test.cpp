#include <doctest/doctest.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/command.hpp"

// Time, speed and training as the commands tell them; tests/predict/metrics_test.cpp has the numbers.

using namespace zeroplan::test;
using nlohmann::json;

namespace {

const std::string kPlan = "llama2-7b --hw dgx-a100 --zero 3 --micro-batch 2 --seq 2048";

json fit(const std::string& words) {
  const CommandResult result = run_command(fmt::format("fit {} -o json", words));
  CAPTURE(result.err);
  REQUIRE((result.exit_code <= 1 || result.exit_code == 5));
  return json::parse(result.out)["result"];
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("the exposed parts add up to the step, and rates are made of it") {
  const json result = fit(kPlan);
  const double step = result["step_seconds"];
  CHECK(step > 0);
  double sum = 0;
  for (const auto& [part, seconds] : result["exposed_seconds"].items()) sum += seconds.get<double>();
  CHECK(sum == doctest::Approx(step));
  // 8 GPUs with 2 sequences of 2048 tokens each; an A100's peak is 312 TFLOPS.
  CHECK(result["tokens_per_second"].get<double>() == doctest::Approx(8 * 2 * 2048 / step));
  CHECK(result["tokens_per_second_per_gpu"].get<double>() == doctest::Approx(2 * 2048 / step));
  CHECK(result["sequences_per_second"].get<double>() == doctest::Approx(16 / step));
  const double model = result["flops"]["model"].get<double>() / step;
  CHECK(result["model_flops_per_second_per_gpu"].get<double>() == doctest::Approx(model));
  CHECK(result["mfu"].get<double>() == doctest::Approx(model / 312e12));
  CHECK(result["hfu"].get<double>() > result["mfu"].get<double>());  // flash attention's backward
  CHECK(result["hfu_korthikanti"].is_null());
  for (const json& asked : result["training"]) CHECK(asked.is_null());
}

TEST_CASE("--tokens asks for days, --price for cost, and both for the cost of the training") {
  const json result = fit(kPlan + " --tokens 1.5T --price 2.5");
  const json& training = result["training"];
  const double rate = result["tokens_per_second"];
  CHECK(training["tokens"] == 1500000000000);
  CHECK(training["price_per_gpu_hour"] == 2.5);
  CHECK(training["days"].get<double>() == doctest::Approx(1.5e12 / rate / 86400));
  CHECK(training["gpu_hours"].get<double>() == doctest::Approx(8 * 1.5e12 / rate / 3600));
  CHECK(training["cost"].get<double>() == doctest::Approx(2.5 * 8 * 1.5e12 / rate / 3600));
  CHECK(training["cost_per_billion_tokens"].get<double>() ==
        doctest::Approx(training["cost"].get<double>() / 1500));

  const json only_price = fit(kPlan + " --price 2.5")["training"];
  CHECK(only_price["cost"].is_null());
  CHECK(only_price["days"].is_null());
  CHECK(only_price["cost_per_billion_tokens"] == training["cost_per_billion_tokens"]);
  CHECK(fit(kPlan + " --tokens 10B")["training"]["cost"].is_null());

  const std::string table = run_command(fmt::format("fit {} --tokens 1.5T --price 2.5", kPlan)).out;
  CHECK(has(table, "Training of 1.5T tokens"));
  CHECK(has(table, "cost, at 2.5 per GPU-hour"));
}

TEST_CASE("a time that is not known is null, with the reason for people") {
  CHECK(fit("params=7.5B --hw v100-32gb --gpus 8 --tokens 1B")["step_seconds"].is_null());
  const json result = fit("gpt2 --hw l4 --gpus 2 --tokens 1B");
  CHECK(result["step_seconds"].is_null());
  CHECK(result["exposed_seconds"]["compute"].is_null());
  CHECK(result["training"]["days"].is_null());
  CHECK(result["training"]["tokens"] == 1000000000);
  CHECK(has(run_command("fit gpt2 --hw l4 --gpus 2").out,
            "The time of a step is not known: the links between the devices of l4 are not described."));
}

TEST_CASE("bad tokens and prices are refused, both at once") {
  const CommandResult result = run_command("fit gpt2 --hw v100-32gb --tokens 300b --price -1");
  CHECK(result.exit_code == 2);
  CHECK(result.out.empty());
  CHECK(has(result.err, "zeroplan: error: --tokens: found \"300b\""));
  CHECK(has(result.err, "zeroplan: error: --price: found \"-1\""));
  CHECK(run_command("compare gpt2 --hw v100-32gb --tokens 0").exit_code == 2);
  CHECK(run_command("explain training.days gpt2 --hw v100-32gb --tokens x").exit_code == 2);
  CHECK(has(run_command("explain training.cost gpt2 --hw v100-32gb --tokens 1B").err,
            "KEY: training.cost has no value: it needs --tokens and --price"));
}

TEST_CASE("compare has the time of every strategy, as fit has it") {
  const json rows =
      json::parse(run_command(fmt::format("compare {} --tokens 1T --price 2 -o json", kPlan)).out);
  int checked = 0;
  for (const json& row : rows["result"]["strategies"]) {
    if (!row["possible"].get<bool>()) continue;
    CAPTURE(row["strategy"]);
    if (row["verdict"] == "does_not_fit") {
      CHECK(row["step_seconds"].is_null());
      CHECK(row["mfu"].is_null());
      CHECK(row["training"]["days"].is_null());
      CHECK(row["time_not_known"] == "the plan does not fit");
      continue;
    }
    CHECK(row["step_seconds"].get<double>() > 0);
    if (row["strategy"] != "ZeRO-3") continue;
    ++checked;
    const json alone = fit(kPlan + " --tokens 1T --price 2");
    for (const char* key :
         {"step_seconds", "exposed_seconds", "tokens_per_second_per_gpu", "mfu", "training"}) {
      CHECK(row[key] == alone[key]);
    }
  }
  CHECK(checked == 1);
}

// The finding: "MFU 62.3 %" for 70B on one card of 24 GB.
TEST_CASE("what does not fit has no speed, in any format") {
  const std::string plan = "fit llama2-70b --hw rtx-4090 --tokens 1T --price 2";
  for (const char* format : {"table", "md"}) {
    const std::string out = run_command(fmt::format("{} -o {}", plan, format)).out;
    CAPTURE(out);
    CHECK(!has(out, "MFU"));
    CHECK(!has(out, "days"));
    CHECK(has(out, "No time and no cost are given: the plan does not fit."));
  }
  CHECK(has(run_command(plan + " -o csv").out, "the plan does not fit"));
  const json result = fit("llama2-70b --hw rtx-4090 --tokens 1T --price 2");
  CHECK(result["mfu"].is_null());
  CHECK(result["training"]["cost"].is_null());
  CHECK(result["time_not_known"] == "the plan does not fit");
  CHECK(run_command(plan + " --trace /tmp/zeroplan_no_trace.json").exit_code == 2);
  CHECK(run_command("explain mfu llama2-70b --hw rtx-4090").exit_code == 2);
}

TEST_CASE("an engine that has not run on GPUs says so where its times stand") {
  const std::string native = run_command("fit gpt2 --hw dgx-a100 --engine native").out;
  CHECK(has(native, "native (has not run on GPUs)"));
  CHECK(has(native, "Time per step (native: not run on GPUs)"));
  const std::string usual = run_command("fit gpt2 --hw dgx-a100").out;
  CHECK(!has(usual, "run on GPUs"));
  CHECK(has(usual, "in wide use on GPUs, and held against published runs"));
}
