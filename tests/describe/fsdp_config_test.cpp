#include "planner/describe/fsdp_config.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/describe/plan_support.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;
using zeroplan::testing::contains;
using zeroplan::testing::problems_of;

namespace {

PlanFile reading(const std::string& fsdp, const std::string& head = "num_processes: 16\nnum_machines: 2\n") {
  return read_fsdp_config(
      parse_yaml("distributed_type: FSDP\n" + head + "fsdp_config:\n  " + fsdp + "\n", "accelerate.yaml"));
}

std::string wrong(const std::string& text) {
  return problems_of([&] { read_fsdp_config(parse_yaml(text, "accelerate.yaml")); });
}

}  // namespace

TEST_CASE("R34: sharding strategies are ZeRO stages") {
  CHECK(reading("fsdp_sharding_strategy: FULL_SHARD").options.zero == 3);
  CHECK(reading("fsdp_sharding_strategy: SHARD_GRAD_OP").options.zero == 2);
  CHECK(reading("fsdp_sharding_strategy: NO_SHARD").options.zero == 0);
  CHECK(reading("fsdp_sharding_strategy: 1").options.zero == 3);
  CHECK(reading("fsdp_sharding_strategy: 3").options.zero == 0);
  CHECK(reading("{fsdp_version: 2, fsdp_reshard_after_forward: true}").options.zero == 3);
  CHECK(reading("{fsdp_version: 2, fsdp_reshard_after_forward: false}").options.zero == 2);
  CHECK(reading("{fsdp_version: 2}").options.zero == 3);
  const PlanFile file = reading("fsdp_sharding_strategy: FULL_SHARD");
  CHECK(file.options.engine == "fsdp2");
  CHECK(file.options.gpus == 16);
  CHECK(file.options.nodes == 2);
  CHECK(file.missing == std::vector<std::string>{"model", "hw", "micro_batch", "seq"});
}

TEST_CASE("R34: hybrid sharding is stage 3 inside a node, planned as one replica") {
  const PlanFile file = reading("fsdp_sharding_strategy: HYBRID_SHARD");
  CHECK(file.options.zero == 3);
  CHECK(file.options.gpus == 8);
  CHECK(file.options.nodes == 1);
  REQUIRE(file.notes.size() == 1);
  CHECK(contains(file.notes[0], "one of 2 replicas"));
  CHECK(contains(problems_of([] {
                   reading("fsdp_sharding_strategy: HYBRID_SHARD", "num_processes: 15\nnum_machines: 2\n");
                 }),
                 "expected a multiple of num_machines 2"));
}

TEST_CASE("R34: mixed_precision is text, also where it is no") {
  const auto precision = [](const std::string& text) {
    return reading("{fsdp_version: 2}", "mixed_precision: " + text + "\n").options.dtype;
  };
  CHECK(precision("'no'") == Precision::fp32);
  CHECK(precision("no") == Precision::fp32);
  CHECK(precision("false") == Precision::fp32);
  CHECK(precision("bf16") == Precision::bf16);
  CHECK(precision("fp16") == Precision::fp16);
  CHECK(precision("null") == std::nullopt);
  CHECK(contains(wrong("mixed_precision: bf61\nfsdp_config: {}\n"), "nearest: bf16"));
  CHECK(contains(wrong("mixed_precision: fp8\nfsdp_config: {}\n"), "not modelled"));
}

TEST_CASE("offload, checkpointing, and what is refused") {
  CHECK(reading("{fsdp_version: 2, fsdp_offload_params: true}").options.offload == Offload::all);
  CHECK(reading("{fsdp_version: 2, fsdp_activation_checkpointing: true}").options.recompute ==
        Recompute::full);
  CHECK(contains(
      problems_of([] { reading("{fsdp_sharding_strategy: SHARD_GRAD_OP, fsdp_offload_params: true}"); }),
      "without full sharding"));
  CHECK(contains(wrong("distributed_type: DEEPSPEED\n"), "give the DeepSpeed JSON file itself"));
  CHECK(contains(wrong("distributed_type: FSDP\n"), "fsdp_config: missing"));
  CHECK(contains(wrong("fsdp_config: {fsdp_sharding_strategy: FULL_SHRAD}\n"), "nearest: FULL_SHARD"));
}
