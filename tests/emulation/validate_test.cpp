#include <doctest/doctest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "tests/support/json_schema.hpp"
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
                   "--dtype fp32 --steps 2 --device cuda " +
                   (words.find("-o ") == std::string::npos ? "-o json " : "") + words);
}

}  // namespace

TEST_CASE("validate on emulated GPUs: what was planned is what is measured, on one and on several") {
  for (const char* plan : {"--gpus 1", "--gpus 1 --recompute full", "--gpus 2 --zero 3 --offload optimizer",
                           "--gpus 4 --zero 2 --tp 2 --grad-accum 2"}) {
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

namespace {

// With a made-up driver of this kind of machine beside the emulated GPUs.
CommandResult run_beside(const std::string& machine, const std::string& words) {
  return run(words, "ZEROPLAN_FAKE_NVML=" + machine + " LD_LIBRARY_PATH='" ZEROPLAN_FAKE_NVML "/new'");
}

const json& line_of(const json& record, const std::string& point) {
  for (const json& line : record["measured"]["device_memory"]) {
    if (line["point"] == point) return line;
  }
  throw std::runtime_error("no line " + point);
}

}  // namespace

TEST_CASE(
    "validate on emulated GPUs: the buffers take from the driver what was predicted, in whole granules") {
  for (const char* plan : {"--gpus 1", "--gpus 1 --recompute full", "--gpus 2 --zero 3 --offload optimizer",
                           "--gpus 4 --zero 2 --tp 2 --grad-accum 2"}) {
    CAPTURE(plan);
    const CommandResult result = run(std::string(plan) + " --hw h200 --engine native");
    CAPTURE(result.err);
    CHECK(result.exit_code <= 1);  // an emulated context is not an H200's
    const json record = json::parse(result.out);
    const json& arena = line_of(record, "arena");
    CHECK(arena["growth_bytes"] == arena["predicted_growth_bytes"]);
    CHECK(arena["growth_bytes"].get<std::int64_t>() % (2 << 20) == 0);
    CHECK(arena["growth_bytes"] > 0);
    bool told = false;
    for (const json& term : record["predicted"]["overheads"]) told = told || term["name"] == "granularity";
    CHECK(told);
  }
}

TEST_CASE(
    "validate on emulated GPUs: what NVML says of memory, clocks and throttling stands beside the step") {
  const CommandResult result = run_beside("busy", "--gpus 2 --zero 2");
  CAPTURE(result.err);
  CAPTURE(result.out);
  REQUIRE(result.exit_code == 0);
  const json record = json::parse(result.out);
  if (zeroplan::test::can_validate()) {
    for (const std::string& violation : zeroplan::test::schema_violations({{"validation", record}}))
      FAIL_CHECK(violation);
  }
  const json& measured = record["measured"];
  CHECK(measured["gpu_note"].is_null());
  CHECK(measured["slowest_gpu"]["sm_clock_mhz"] == 1755);
  CHECK(measured["slowest_gpu"]["most_sm_clock_mhz"] == 1980);
  CHECK(measured["slowest_gpu"]["power_watts"].get<double>() == doctest::Approx(690));
  CHECK(measured["slowest_gpu"]["temperature_celsius"] == 64);
  CHECK(measured["slowest_gpu"]["held_back_share"] == 1);
  CHECK(measured["slowest_gpu"]["reasons"] == json::parse(R"([{"reason": "power cap", "share": 1}])"));
  REQUIRE(measured["of_rank"].size() == 2);
  for (const json& rank : measured["of_rank"]) CHECK(rank["gpu"]["samples"] >= 1);
  // The bytes that the ranks moved, with the time that this took.
  REQUIRE(!measured["traffic"].empty());
  for (const json& row : measured["traffic"]) {
    CAPTURE(row.dump());
    CHECK(row["calls"] > 0);
    CHECK(row["moved_bytes"] > 0);
    CHECK(row["link_gbytes_per_s"].is_null());  // the plan is for processors
    bool same = false;
    for (const json& figure : record["comparison"]) {
      const std::string key =
          "moved." + row["group"].get<std::string>() + "." + row["collective"].get<std::string>();
      same = same || (figure["key"] == key && figure["measured"] == row["moved_bytes"]);
    }
    CHECK(same);
  }
  const CommandResult table = run_beside("busy", "--gpus 1 -o table --hw h200 --engine native");
  for (const char* part : {"SM clock, median", "1,755", "clocks held back", "power cap", "NVML: device"}) {
    CAPTURE(part);
    CAPTURE(table.out);
    CHECK(table.out.find(part) != std::string::npos);
  }
}

TEST_CASE("validate on emulated GPUs: links of the plan's machine stand beside the rates of collectives") {
  const CommandResult result = run("--gpus 4 --zero 2 --tp 2 --hw dgx-h100 --engine native");
  CAPTURE(result.err);
  const json record = json::parse(result.out);
  REQUIRE(record["measured"]["traffic"].size() >= 2);
  for (const json& row : record["measured"]["traffic"]) CHECK(row["link_gbytes_per_s"] == 450);
}

TEST_CASE("validate on emulated GPUs: without NVML the run is the same, and says why no clocks are known") {
  const CommandResult result = run("--gpus 1", "LD_LIBRARY_PATH=/nowhere");
  REQUIRE(result.exit_code == 0);
  const json record = json::parse(result.out);
  CHECK(record["measured"]["slowest_gpu"].is_null());
  const bool has_driver = run_shell("ldconfig -p | grep -q libnvidia-ml.so.1").exit_code == 0;
  if (!has_driver) {
    CHECK(record["measured"]["gpu_note"].get<std::string>().find("no NVIDIA driver") != std::string::npos);
  }
  const CommandResult other = run_beside("not-loaded", "--gpus 1 -o table");
  CHECK(other.exit_code == 0);
  CHECK(other.out.find("The GPU's clocks are not known: NVIDIA's driver is installed") != std::string::npos);
}
