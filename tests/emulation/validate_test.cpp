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

CommandResult run(const std::string& words, const std::string& environment = "",
                  const std::string& device = "cuda") {
  return run_shell(environment +
                   " '" ZEROPLAN_EMULATED_PROGRAM
                   "' validate layers=2,hidden=32,heads=2,vocab=101 --seq 16 "
                   "--steps 2 " +
                   (words.find("-o ") == std::string::npos ? "-o json " : "") + "--device " + device + " " +
                   words + (words.find("--dtype") == std::string::npos ? " --dtype fp32" : ""));
}

// The record of a run whose figures are all as predicted.
json agreeing(const CommandResult& result) {
  CAPTURE(result.err);
  CAPTURE(result.out);
  REQUIRE(result.exit_code == 0);
  json record = json::parse(result.out);
  CHECK(record["outcome"] == "agrees");
  return record;
}

}  // namespace

TEST_CASE("validate on emulated GPUs: what was planned is what is measured, on one and on several") {
  for (const char* plan : {"--gpus 1", "--gpus 1 --recompute full", "--gpus 2 --zero 3 --offload optimizer",
                           "--gpus 4 --zero 2 --tp 2 --grad-accum 2",
                           "--gpus 2 --zero 1 --grad-accum 2 --dropout --attention materialized"}) {
    CAPTURE(plan);
    const json measured =
        agreeing(run(plan, "ZEROPLAN_EMULATED_POLICY=random ZEROPLAN_EMULATED_SEED=3"))["measured"];
    CHECK(measured["device"].get<std::string>().starts_with("cuda:0 (GPU, compute capability 9.0)"));
    CHECK(measured["ranks_of_device"] == 1);
    if (measured["ranks"] == 1) {
      CHECK(measured["exchange"].is_null());
    } else {
      CHECK(measured["exchange"] == "NCCL 2.28.9, the arena is a window of its communicators");
    }
  }
}

TEST_CASE("validate on emulated GPUs: an arena that is no block, and an older NCCL, have no window") {
  CHECK(agreeing(run("--gpus 2 --zero 2 --contiguous-memory off"))["measured"]["exchange"] == "NCCL 2.28.9");
}

TEST_CASE("validate of ranks that share an emulated GPU: as predicted, and the bits of one rank") {
  // Of the bits: stages 0 to 3, and those of one rank that accumulates what the others share.
  std::string first;
  for (const char* stage : {"0", "1", "2", "3"}) {
    CAPTURE(stage);
    const json record = agreeing(run("--gpus 3 --against-one-rank 2 --zero " + std::string(stage),
                                     "ZEROPLAN_EMULATED_POLICY=random ZEROPLAN_EMULATED_SEED=5", "cuda:1"));
    const json& measured = record["measured"];
    CHECK(measured["device"].get<std::string>().starts_with("cuda:1 (GPU"));
    CHECK(measured["ranks"] == 3);
    CHECK(measured["ranks_of_device"] == 3);
    CHECK(measured["exchange"] == "copies and kernels within one GPU");
    CHECK(measured["device_memory"].is_null());
    std::string losses;
    for (const json& step : measured["steps"]) losses += step["loss"].dump() + " ";
    if (first.empty()) first = losses;
    CHECK(losses == first);
    for (const json& row : record["comparison"]) {
      if (row["key"] == "one_rank.loss") CHECK(row["measured"] == row["predicted"]);
    }
  }
  for (const char* plan : {"--gpus 4 --zero 2 --tp 2 --grad-accum 2", "--gpus 2 --zero 3 --offload optimizer",
                           "--gpus 2 --tp 2 --recompute full --zero 1", "--gpus 2 --zero 2 --dtype bf16"}) {
    CAPTURE(plan);
    CHECK(agreeing(run(plan, "ZEROPLAN_EMULATED_POLICY=late", "cuda:0"))["measured"]["ranks_of_device"] > 1);
  }
}

TEST_CASE("validate says of ranks that share a GPU that their times are not those of so many") {
  const CommandResult result = run_shell("'" ZEROPLAN_EMULATED_PROGRAM
                                         "' validate layers=1,hidden=32,heads=2,vocab=101 --seq 16 --dtype "
                                         "fp32 --steps 1 --gpus 2 --device cuda:0");
  CHECK(result.out.find("The 2 ranks share one GPU: the times are not those") != std::string::npos);
}

TEST_CASE("validate refuses ranks that one GPU has no room for, by its description and by itself") {
  const auto refused = [](const CommandResult& result) {
    CAPTURE(result.out);
    CHECK(result.exit_code == 3);
    return json::parse(result.out)["reason"].get<std::string>();
  };
  const std::string words =
      "' validate gpt2-xl --engine native --hw h200 --zero 0 --micro-batch 8 --seq 1024 ";
  const std::string described =
      refused(run_shell("'" ZEROPLAN_EMULATED_PROGRAM + words + "--gpus 4 --device cuda:0 -o json"));
  CHECK(described.starts_with(
      "the 4 ranks on one h200 need 190,596,675,584 bytes for their buffers, and it has"));
  const std::string found = refused(
      run("--gpus 4 --micro-batch 64", "ZEROPLAN_EMULATED_GPUS=1 ZEROPLAN_EMULATED_MIB=302", "cuda:0"));
  CHECK(found.find("cuda:0 (GPU, compute capability 9.0): the buffers of 4 ranks that share it need ") !=
        std::string::npos);
  CHECK(found.find("and 2097152 of its 316669952 bytes are free") != std::string::npos);
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
