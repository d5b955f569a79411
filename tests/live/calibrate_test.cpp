#include <doctest/doctest.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/support/json_schema.hpp"
#include "tests/support/process.hpp"

// `zeroplan calibrate` as a user runs it. Times are never compared with predictions here: machines are busy.

using nlohmann::json;
using zeroplan::test::CommandResult;
using zeroplan::test::run_shell;
using zeroplan::test::TemporaryFolder;

namespace {

const std::string kProgram = "'" ZEROPLAN_BINARY "' ";
const std::string kPlan = "layers=2,hidden=64,heads=4,vocab=300 --seq 32 --dtype fp32 -o json ";

}  // namespace

TEST_CASE("a profile has every kind of figure, with plausible values") {
  const CommandResult result =
      run_shell(kProgram + "calibrate --quick --ranks 1,2 --types fp32 --repeats 2 -o json");
  CHECK(result.exit_code == 0);
  CHECK(result.err.find("2 ranks, round 2 of 2: fp32 collectives") != std::string::npos);
  const json profile = json::parse(result.out);
  if (zeroplan::test::can_validate()) {
    for (const std::string& violation : zeroplan::test::schema_violations({{"calibration", profile}})) {
      FAIL_CHECK(violation);
    }
  }
  CHECK(profile["overheads"]["context_bytes"]["value"] > 1'000'000);
  CHECK(profile["overheads"]["library_workspace_bytes"]["value"] > 0);
  CHECK(profile["memory_measured_gbytes_per_s"]["value"] > 0.1);
  CHECK(profile["host_to_device_gbytes_per_s"]["value"] > 0.1);
  REQUIRE(profile["gemm_attained"].size() == 1);
  CHECK(profile["gemm_attained"][0]["tflops"] > 1e-4);
  CHECK(profile["gemm_attained"][0]["tflops"] < 100);

  std::set<std::string> collectives;
  for (const json& table : profile["collectives_attained"]) {
    collectives.insert(table["op"].get<std::string>());
    CHECK(table["devices"] == 2);
    CHECK(table["dtype"] == "fp32");
    CHECK(table["busbw_gbytes_per_s"].size() >= 8);
  }
  CHECK(collectives == std::set<std::string>{"all_gather", "all_reduce", "reduce_scatter"});

  REQUIRE(profile["calibrated"].size() == 2);
  for (const json& rates : profile["calibrated"]) {
    std::set<std::string> ops;
    for (const json& kernel : rates["kernels"]) {
      const auto op = kernel["op"].get<std::string>();
      ops.insert(op);
      CAPTURE(op);
      const json& figures = kernel.contains("gflops") ? kernel["gflops"] : kernel["gbytes_per_s"];
      REQUIRE(!figures.empty());
      CHECK(kernel["spread"].size() == figures.size());
      for (const json& figure : figures) CHECK(figure > 0);
    }
    // Every kernel of a step that runs here.
    for (const char* op : {"fill_zero",
                           "copy",
                           "copy_to_device",
                           "accumulate_host",
                           "embedding_forward",
                           "norm_forward",
                           "matmul",
                           "rotary_forward",
                           "attention_forward",
                           "attention_scores",
                           "softmax_forward",
                           "attention_values",
                           "activation_forward",
                           "residual_add",
                           "cross_entropy_maximum",
                           "cross_entropy_exponent",
                           "cross_entropy_loss",
                           "cross_entropy_backward",
                           "matmul_input_gradient",
                           "matmul_weight_gradient",
                           "activation_backward",
                           "attention_row_dot",
                           "attention_backward",
                           "attention_values_backward",
                           "softmax_backward",
                           "attention_scores_backward",
                           "rotary_backward",
                           "norm_backward",
                           "embedding_backward",
                           "gradient_norm",
                           "gradient_to_fp32",
                           "optimizer_update",
                           "scale_update"}) {
      CAPTURE(op);
      CHECK(ops.contains(op));
    }
  }
}

TEST_CASE("validate and fit take a profile, and times stand beside those measured") {
  const TemporaryFolder folder;
  const std::string file = folder.file("here.yaml");
  const CommandResult calibrated =
      run_shell(kProgram + "calibrate --quick --repeats 2 --ranks 1,2 --types fp32 --out '" + file + "'");
  CHECK(calibrated.exit_code == 0);
  CHECK(calibrated.out.empty());
  const std::string hardware = "--hw '" + file + "' ";
  CHECK(run_shell(kProgram + "fit " + kPlan + hardware).exit_code == 0);

  for (const char* plan :
       {"", "--gpus 2 --zero 1", "--gpus 2 --tp 2", "--gpus 2 --zero 2 --offload optimizer"}) {
    CAPTURE(plan);
    const CommandResult result = run_shell(fmt::format("{}validate {}{}{}", kProgram, kPlan, hardware, plan));
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
    const json record = json::parse(result.out);
    CHECK(record["outcome"] == "agrees");
    std::set<std::string> keys;
    for (const json& time : record["times"]) {
      keys.insert(time["key"].get<std::string>());
      CAPTURE(time.dump());
      if (time["key"] == "time.waiting" || time["key"] == "time.hidden_share") {  // either may be none
        CHECK(time["predicted"] >= 0);
        CHECK(time["measured"] >= 0);
        continue;
      }
      CHECK(time["predicted"] > 0);
      CHECK(time["measured"] > 0);
      CHECK(time["relative_error"].get<double>() ==
            doctest::Approx(time["predicted"].get<double>() / time["measured"].get<double>() - 1));
    }
    const std::string options(plan);
    CHECK(keys.contains("time.step"));
    CHECK(keys.contains("time.compute"));
    CHECK(keys.contains("time.data_parallel") == (options.find("zero") != std::string::npos));
    CHECK(keys.contains("time.tensor_parallel") == (options.find("tp") != std::string::npos));
    CHECK(keys.contains("time.host_copies") == (options.find("offload") != std::string::npos));
    CHECK(keys.contains("time.exposed_share") == !options.empty());
  }
}

TEST_CASE("without a profile of this machine, times are not compared") {
  for (const char* hardware : {"", "--hw v100-32gb --device cpu"}) {
    const CommandResult result = run_shell(fmt::format("{}validate {}{}", kProgram, kPlan, hardware));
    CHECK(result.exit_code == 0);
    CHECK(json::parse(result.out)["times"].empty());
  }
}

TEST_CASE("processes of MPI are calibrated as the ranks they are") {
  if (run_shell("command -v mpirun").exit_code != 0) return;
  const CommandResult result =
      run_shell("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 " +
                kProgram + "calibrate --quick --repeats 2 --types fp32 -o json");
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  const json profile = json::parse(result.out);
  REQUIRE(profile["calibrated"].size() == 2);
  CHECK(profile["calibrated"][1]["devices"] == 2);
  CHECK(profile["calibrated"][1]["source"].get<std::string>().find("processes of MPI") != std::string::npos);
  CHECK(profile["collectives_attained"].size() == 3);
}

TEST_CASE("options of calibrate that are wrong are all told") {
  const CommandResult result =
      run_shell(kProgram + "calibrate gpt2 --ranks 0,1 --types fp32,fp64 --repeats none");
  CHECK(result.exit_code == 2);
  for (const char* part :
       {"--ranks: found \"0\"", "--types: found \"fp64\"", "--repeats: found \"none\"", "found \"gpt2\""}) {
    CAPTURE(part);
    CHECK(result.err.find(part) != std::string::npos);
  }
}
