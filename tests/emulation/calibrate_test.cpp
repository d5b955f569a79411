#include <doctest/doctest.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/support/command.hpp"
#include "tests/support/json_schema.hpp"
#include "tests/support/process.hpp"

// `zeroplan calibrate --device cuda` as a user runs it, on emulated GPUs: whether it goes through and what it writes. Its rates
// mean nothing here.

using nlohmann::json;
using zeroplan::test::CommandResult;
using zeroplan::test::run_shell;
using zeroplan::test::TemporaryFolder;

namespace {

const std::string kProgram = "'" ZEROPLAN_EMULATED_PROGRAM "' ";
const std::string kQuick = kProgram + "calibrate --quick --sizes cpu --types fp32 ";
const std::string kNvml = " LD_LIBRARY_PATH='" ZEROPLAN_FAKE_NVML "/new' ";

void check_schema(const json& profile) {
  if (!zeroplan::test::can_validate()) return;
  for (const std::string& violation : zeroplan::test::schema_violations({{"calibration", profile}}))
    FAIL_CHECK(violation);
}

}  // namespace

TEST_CASE(
    "calibrate on an emulated GPU: a profile of what was measured on what the shipped description says") {
  const TemporaryFolder folder;
  const std::string file = folder.file("gpu.json");
  const CommandResult result =
      run_shell("ZEROPLAN_FAKE_NVML=busy" + kNvml + kQuick + "--device cuda:0 -o json --out '" + file + "'");
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  const json profile = json::parse(zeroplan::test::read_file(file));
  check_schema(profile);
  CHECK(profile["name"] == "calibrated-h200");
  CHECK(profile["capacity"]["cuda_bytes"]["value"] == std::int64_t{16} << 30);
  CHECK(profile["capacity"]["nvml_bytes"]["value"] == std::int64_t{143771} << 20);
  const auto note = profile["note"].get<std::string>();
  CAPTURE(note);
  CHECK(note.find("driver 570.86.15") != std::string::npos);
  CHECK(note.find("Peaks and rates of data sheets are those of h200") != std::string::npos);
  CHECK(note.find("SM clock 1755 of 1980 MHz") != std::string::npos);
  CHECK(note.find("power cap in 100 %") != std::string::npos);
  // Of the part: the data sheet's.
  CHECK(profile["peak_bf16_tflops"]["value"] == 989);
  CHECK(profile["memory_gbytes_per_s"]["value"] == 4800);
  // Measured: the emulated driver's context is 300 MiB, or what NVML says of the process.
  const auto context = profile["overheads"]["context_bytes"]["value"].get<std::int64_t>();
  const auto how = profile["overheads"]["context_bytes"]["note"].get<std::string>();
  CHECK(context == (how.find("this process") != std::string::npos ? 612 : 300) << 20);
  CHECK(profile["overheads"]["library_workspace_bytes"]["source"].get<std::string>().find(
            "zeroplan calibrate") == 0);
  CHECK(profile["shortest_kernel_us"]["value"] > 0);
  CHECK(profile["memory_measured_gbytes_per_s"]["source"].get<std::string>().find("zeroplan calibrate") == 0);
  CHECK(profile["host_to_device_gbytes_per_s"]["source"].get<std::string>().find("zeroplan calibrate") == 0);
  REQUIRE(profile["calibrated"].size() == 1);
  std::set<std::string> ops;
  for (const json& kernel : profile["calibrated"][0]["kernels"]) ops.insert(kernel["op"].get<std::string>());
  for (const char* op : {"matmul", "attention_forward", "attention_backward", "norm_forward", "copy",
                         "copy_to_device", "optimizer_update", "cross_entropy_loss"}) {
    CAPTURE(op);
    CHECK(ops.contains(op));
  }

  const CommandResult fit =
      run_shell(kProgram + "fit gpt2 --seq 256 --dtype fp32 --hw '" + file + "' -o json");
  CAPTURE(fit.err);
  REQUIRE(fit.exit_code == 0);
  const json answer = json::parse(fit.out);
  CHECK(answer["result"]["step_seconds"] > 0);
  bool told = false;
  for (const json& term : answer["result"]["overheads"]) {
    if (term["name"] == "context") told = term["bytes"] == context;
  }
  CHECK(told);
}

TEST_CASE(
    "calibrate on two emulated GPUs: collectives and what a communicator takes, with the description that "
    "--hw names") {
  const CommandResult result = run_shell("ZEROPLAN_EMULATED_GPUS=2" + (" ZEROPLAN_FAKE_NVML=none" + kNvml) +
                                         kQuick + "--device cuda --ranks 2 --hw a100-80gb -o json");
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  const json profile = json::parse(result.out);
  check_schema(profile);
  CHECK(profile["name"] == "calibrated-a100-80gb");
  CHECK(profile["note"].get<std::string>().find("Clocks are not known") != std::string::npos);
  std::set<std::string> measured;
  for (const json& table : profile["collectives_attained"]) {
    if (table["source"].get<std::string>().find("zeroplan calibrate: 2 ranks") != 0) continue;
    CHECK(table["devices"] == 2);
    for (const json& rate : table["busbw_gbytes_per_s"]) CHECK(rate > 0);
    measured.insert(table["op"].get<std::string>());
  }
  CHECK(measured == std::set<std::string>{"all_gather", "all_reduce", "reduce_scatter"});
}

TEST_CASE("calibrate on GPUs: what is missing or wrong is told, with the exit code of its kind") {
  struct Case {
    const char* environment;
    const char* words;
    int exit_code;
    const char* told;
  };
  for (const Case& one :
       {Case{"ZEROPLAN_FAKE_NVML=none", "--device cuda", 2, "--hw: "},
        Case{"ZEROPLAN_FAKE_NVML=one-h200", "--device cuda:0 --hw cpu", 2, "expected a GPU's description"},
        Case{"ZEROPLAN_FAKE_NVML=one-h200", "--hw h200", 2, "--hw: is not used here"},
        Case{"ZEROPLAN_FAKE_NVML=one-h200", "--device cuda:0 --ranks 2", 2, "--ranks: "},
        Case{"ZEROPLAN_FAKE_NVML=one-h200", "--device cuda --sizes small", 2, "--sizes: "},
        Case{"ZEROPLAN_FAKE_NVML=one-h200", "--device cuda:9", 3, "there is no GPU 9"},
        Case{"ZEROPLAN_EMULATED_DRIVER=35", "--device cuda", 3, "no NVIDIA driver"}}) {
    CAPTURE(one.words);
    const CommandResult result =
        run_shell(fmt::format("{}{}{}{}", one.environment, kNvml, kQuick, one.words));
    CAPTURE(result.err);
    CHECK(result.exit_code == one.exit_code);
    CHECK(result.err.find(one.told) != std::string::npos);
  }
}
