#include "planner/describe/plan/accelerate_config.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/describe/plan/plan_support.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;
using zeroplan::testing::contains;
using zeroplan::testing::problems_of;

namespace {

PlanFile reading(const std::string& fsdp, const std::string& head = "num_processes: 16\nnum_machines: 2\n") {
  return read_accelerate_config(
      parse_yaml("distributed_type: FSDP\n" + head + "fsdp_config:\n  " + fsdp + "\n", "accelerate.yaml"));
}

std::string wrong(const std::string& text) {
  return problems_of([&] { read_accelerate_config(parse_yaml(text, "accelerate.yaml")); });
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

TEST_CASE("R34: hybrid sharding is stage 3 inside a node, with replicas across nodes") {
  const PlanFile file = reading("fsdp_sharding_strategy: HYBRID_SHARD");
  CHECK(file.options.zero == 3);
  CHECK(file.options.gpus == 16);
  CHECK(file.options.nodes == 2);
  CHECK(file.options.shard_inside_node);
  CHECK(file.options.notes.size() == 1);
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
  CHECK(contains(wrong("distributed_type: DEEPSPEED\n"), "deepspeed_config: missing"));
  CHECK(contains(wrong("distributed_type: MEGATRON_LM\n"), "expected one of FSDP, DEEPSPEED, MULTI_GPU, NO"));
  CHECK(contains(wrong("distributed_type: FSDP\n"), "fsdp_config: missing"));
  CHECK(contains(wrong("fsdp_config: {fsdp_sharding_strategy: FULL_SHRAD}\n"), "nearest: FULL_SHARD"));
}

TEST_CASE("DeepSpeed's settings that stand in accelerate's own file") {
  const auto reading_deepspeed = [](const std::string& settings) {
    return read_accelerate_config(
               parse_yaml("distributed_type: DEEPSPEED\nmixed_precision: fp16\nnum_processes: 4\n"
                          "deepspeed_config:\n  " +
                              settings + "\n",
                          "accelerate.yaml"))
        .options;
  };
  const PlanOptions options =
      reading_deepspeed("{zero_stage: 2, offload_optimizer_device: cpu, gradient_accumulation_steps: 8}");
  CHECK(options.engine == "deepspeed");
  CHECK(options.zero == 2);
  CHECK(options.offload == Offload::optimizer);
  CHECK(options.grad_accum == 8);
  CHECK(options.gpus == 4);
  CHECK(options.dtype == Precision::fp16);
  // DeepSpeedPlugin's default.
  CHECK(reading_deepspeed("{gradient_clipping: 1.0}").zero == 2);
  CHECK(contains(problems_of([&] { reading_deepspeed("{deepspeed_config_file: ds.json}"); }),
                 "give it with -f"));
  CHECK(contains(problems_of([&] { reading_deepspeed("{zero_stage: 3, offload_param_device: nvme}"); }),
                 "not modelled"));
}

TEST_CASE("plain data parallelism, and the degrees of parallelism_config") {
  const PlanOptions plain =
      read_accelerate_config(
          parse_yaml("distributed_type: MULTI_GPU\nnum_processes: 8\nmixed_precision: bf16\n", "a.yaml"))
          .options;
  CHECK(plain.engine == "pytorch");
  CHECK(plain.zero == 0);
  CHECK(plain.gpus == 8);
  const std::string head = "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\nparallelism_config:\n  ";
  CHECK(read_accelerate_config(parse_yaml(head + "parallelism_config_tp_size: 4\n", "a.yaml")).options.tp ==
        4);
  CHECK(contains(wrong(head + "parallelism_config_cp_size: 2\n"), "divides the tokens of a sequence"));
  CHECK(wrong(head + "parallelism_config_cp_size: 1\n").empty());
}

TEST_CASE("a wrapping policy that is not layer by layer is noted, also where it is missing") {
  const auto notes = [](const std::string& policy) {
    std::string text;
    for (const std::string& note : reading("{fsdp_version: 2, " + policy + "}").options.notes) text += note;
    return text;
  };
  CHECK(notes("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP").empty());
  CHECK(contains(notes("fsdp_auto_wrap_policy: NO_WRAP"),
                 "accelerate.yaml:5: fsdp_config.fsdp_auto_wrap_policy"));
  CHECK(contains(notes("fsdp_auto_wrap_policy: SIZE_BASED_WRAP"), "units are cut by their size"));
  CHECK(contains(notes("fsdp_offload_params: false"), "takes for NO_WRAP"));
}
