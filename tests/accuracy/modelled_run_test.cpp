#include "planner/accuracy/modelled_run.hpp"

#include <doctest/doctest.h>

#include <string>
#include <variant>

#include "tests/accuracy/published_runs.hpp"

using namespace zeroplan;
using namespace zeroplan::accuracy;
using namespace zeroplan::describe;

namespace {

ModelledRun modelled(const Run& run) {
  const auto result = model_run(run);
  if (const auto* reason = std::get_if<NotModelled>(&result)) FAIL(reason->reason);
  return std::get<ModelledRun>(result);
}

std::string reason(const Run& run) {
  const auto result = model_run(run);
  const auto* found = std::get_if<NotModelled>(&result);
  return found == nullptr ? "modelled" : found->reason;
}

// A run that is modelled, to break one thing of.
Run plain_run() { return test::measured_run("bigscience-tr3m-1B3-001"); }

}  // namespace

TEST_CASE("MPT-70b on 512 H100: FSDP, full shard, full recomputation") {
  const auto [model, plan, cluster, memory_known] = modelled(test::measured_run("llm-foundry-001"));
  // Published: 64.8624 billion parameters.
  CHECK(static_cast<double>(count_parameters(model, plan.sequence)) ==
        doctest::Approx(64.8624e9).epsilon(2e-4));
  CHECK(plan.engine->name == "llm-foundry");
  CHECK(plan.zero_stage == 3);
  CHECK(plan.data_parallel == 512);
  CHECK(plan.global_batch() == 4096);
  CHECK(plan.recompute == Recompute::full);
  CHECK(plan.attention == AttentionKernel::flash);
  CHECK(plan.precision == Precision::bf16);
  CHECK_FALSE(plan.dropout);
  CHECK(cluster.name == "dgx-h100");
  CHECK(cluster.nodes == 64);
  CHECK(memory_known);
}

TEST_CASE(
    "InternEvo on 1024 GPUs: optimizer states are divided over four ranks, beside tensor parallelism of "
    "two") {
  const Run run = test::measured_run("internevo-tgs-021");
  const auto [model, plan, cluster, memory_known] = modelled(run);
  CHECK(plan.engine->name == "internevo");
  CHECK(plan.zero_stage == 1);
  CHECK(plan.data_parallel == 512);
  CHECK(plan.tensor_parallel == 2);
  CHECK(plan.shard == 4);
}

TEST_CASE("a Megatron test with tensor parallelism and grouped queries on A100") {
  const auto [model, plan, cluster, memory_known] = modelled(test::measured_run("megatron-lm-golden-005"));
  CHECK(model.kv_heads == 8);
  CHECK_FALSE(model.tied_embeddings);  // the notes say so
  CHECK(plan.engine->name == "megatron");
  CHECK(plan.zero_stage == 1);
  CHECK(plan.data_parallel == 2);
  CHECK(plan.tensor_parallel == 4);
  CHECK(plan.gradient_accumulation == 2);
  CHECK(plan.recompute == Recompute::none);
  CHECK(cluster.device->name == "a100-80gb");
  CHECK(cluster.devices() == 8);
}

TEST_CASE("two nodes of four V100 on Omni-Path: the network of the file") {
  const auto [model, plan, cluster, memory_known] = modelled(plain_run());
  CHECK(plan.engine->name == "megatron");  // Megatron-DeepSpeed: its kernels
  CHECK(plan.attention == AttentionKernel::materialized);
  CHECK(plan.dropout);
  CHECK(cluster.device->name == "v100-32gb");
  CHECK(cluster.nodes == 2);
  CHECK(cluster.devices_per_node == 4);
  REQUIRE(cluster.node != nullptr);
  CHECK(cluster.node->fabric == Fabric::cube_mesh);
  CHECK(cluster.node->nics->value == 4);
  CHECK(cluster.node->internode_gbytes_per_s->value == 50);  // 4 links x 100 Gbit/s / 8
}

TEST_CASE("four V100 with Omni-Path are the machine whose links were measured") {
  const auto [model, plan, cluster, memory_known] = modelled(test::measured_run("bigscience-gpt2-054"));
  CHECK(cluster.name == "jean-zay-v100");
  CHECK(cluster.nodes == 16);
  CHECK(plan.engine->name == "deepspeed");
  CHECK_FALSE(plan.overlap);  // stage 3 before July 2021
}

TEST_CASE("the engine of a run is what its column says, else the default of fit") {
  // Megatron-LM and DeepSpeed of before 2021 have no fused kernels.
  CHECK(modelled(test::measured_run("bigscience-gpt2-035")).plan.engine->name == "megatron-v1");
  CHECK(modelled(test::measured_run("deepspeed-tutorial-003")).plan.engine->name == "megatron-v1");
  CHECK(modelled(test::measured_run("bigscience-tr3m-1B3-001")).plan.engine->name == "megatron");
  Run run = plain_run();
  run.engine = "pytorch";
  CHECK(modelled(run).plan.engine->name == "pytorch");
  run.engine.reset();
  CHECK(modelled(run).plan.engine->name == "deepspeed");
}

TEST_CASE(
    "overlap, dropout and partitioned activations are what their columns say, else the plan's defaults") {
  Run run = plain_run();
  run.dropout = true;
  run.overlap = false;
  CHECK(modelled(run).plan.dropout);
  CHECK_FALSE(modelled(run).plan.overlap);
  run.dropout.reset();
  run.overlap.reset();
  CHECK_FALSE(modelled(run).plan.dropout);
  CHECK(modelled(run).plan.overlap);
}

TEST_CASE("a machine that no column names is told by its GPU") {
  Run run = plain_run();
  run.hardware.clear();
  CHECK(hardware_of(run) == "v100-32gb");
  run.gpu_type = "one of ours";
  CHECK(hardware_of(run) == "v100-32gb");  // by family and memory
  run.gpu_family = "A100";
  run.gpu_memory_gb = 40;
  CHECK(hardware_of(run) == "a100-40gb");
  run.gpus_per_node = 8;
  CHECK(modelled(run).cluster.node != nullptr);
}

TEST_CASE("a run of a framework that is not modelled says so and is not planned as another") {
  CHECK(modelled(test::measured_run("internevo-tgs-001")).plan.engine->name == "internevo");
  CHECK(reason(test::measured_run("llm.c-001")) == "a framework that no engine describes: llm.c");
  Run run = plain_run();
  run.not_scored = "mine";
  CHECK(reason(run) == "mine");
}

TEST_CASE("ZeRO-Offload on one GPU of a DGX-2") {
  const auto [model, plan, cluster, memory_known] = modelled(test::measured_run("deepspeed-tutorial-004"));
  CHECK(plan.offload == Offload::optimizer);
  CHECK(plan.zero_stage == 2);
  CHECK(plan.micro_batch == 10);
  CHECK(cluster.name == "dgx2");
  CHECK(cluster.devices() == 1);
}

TEST_CASE("a GPU whose memory is not stated has no verdict") {
  const auto [model, plan, cluster, memory_known] = modelled(test::measured_run("ds-autotuning-003"));
  CHECK_FALSE(memory_known);
  CHECK(cluster.name == "dgx2");
}

TEST_CASE("a vtrain row: fp16, full recomputation, 800 Gbit/s a node") {
  const auto [model, plan, cluster, memory_known] = modelled(test::vtrain_runs()[1]);
  CHECK(plan.engine->name == "megatron");
  CHECK(plan.tensor_parallel == 2);
  CHECK(plan.data_parallel == 32);
  CHECK(plan.gradient_accumulation == 2);  // 512 / (8 x 32)
  CHECK(plan.precision == Precision::fp16);
  CHECK(plan.recompute == Recompute::full);
  CHECK(cluster.nodes == 8);
  CHECK(cluster.node->internode_gbytes_per_s->value == 100);
  CHECK(modelled(test::vtrain_runs().back()).plan.recompute == Recompute::none);  // on one node
}

TEST_CASE("a stated network goes over the preset's") {
  Run run = plain_run();
  Cluster cluster = resolve_cluster("dgx-a100", {}, {});
  const double cards = cluster.node->nics->value;
  run.nics.reset();
  run.node_gbits_per_s = 1000;
  apply_network(run, cluster);
  CHECK(cluster.node->internode_gbytes_per_s->value == 125);
  CHECK(cluster.node->nics->value == cards);
  CHECK(cluster.node->nic_gbits_per_s->value == 1000 / cards);
  run.nics = 5;
  apply_network(run, cluster);
  CHECK(cluster.node->nics->value == 5);
  CHECK(cluster.node->nic_gbits_per_s->value == 200);
  run.node_gbits_per_s.reset();
  Cluster untouched = resolve_cluster("dgx-a100", {}, {});
  apply_network(run, untouched);
  CHECK(untouched.node->internode_gbytes_per_s->value == 200);
}

TEST_CASE("networks as sources write them") {
  // As the collected file has them; the first row of each.
  const auto gbytes = [](const std::string& words) {
    for (const Run& run : test::measured_runs()) {
      if (run.interconnect == words) return run.node_gbits_per_s.value_or(0) / 8;
    }
    return -1.0;
  };
  CHECK(gbytes("1600 Gbps/node RoCE") == 200);
  CHECK(gbytes("NVLink; 4x100 Gb/s RoCE per node") == 50);
  CHECK(gbytes("NVSwitch; 8 x 200 Gb/s HDR InfiniBand per node") == 200);
  CHECK(gbytes("NVLink; 400 Gb/s RDMA CX-7 per GPU") == 400);
  CHECK(gbytes("NVSwitch in node; 100 Gb/s (1 IB) inter-node") == 12.5);
  CHECK(gbytes("NVLink; 4 Omni-Path links per node") == 50);
  CHECK(gbytes("NVLink (DGX)") == 0);  // the preset's
}

TEST_CASE("what cannot be modelled says why") {
  CHECK(reason(plain_run()) == "modelled");
  const auto changed = [](auto change) {
    Run run = plain_run();
    change(run);
    return reason(run);
  };
  CHECK(changed([](Run& run) { run.pipeline_parallel = 2; }) == "pipeline parallelism");
  CHECK(changed([](Run& run) { run.context_parallel = 2; }) == "context parallelism");
  CHECK(changed([](Run& run) { run.expert_parallel = 2; }) == "expert parallelism");
  CHECK(changed([](Run& run) { run.hardware.clear(), run.gpu_type = "ours", run.gpu_family = "GH200"; }) ==
        "no hardware preset for GH200-32GB");
  CHECK(changed([](Run& run) { run.hardware.clear(), run.gpu_type.clear(), run.gpu_family.clear(); }) ==
        "GPU not stated");
  CHECK(changed([](Run& run) { run.precision = "FP8-CS"; }) == "fp8 or fp4 products");
  CHECK(changed([](Run& run) { run.precision.clear(); }) == "precision not stated");
  CHECK(changed([](Run& run) { run.compile = "yes"; }) == "a compiled step");
  CHECK(changed([](Run& run) { run.micro_batch.reset(); }) == "batch not stated");
  CHECK(changed([](Run& run) { run.zero_stage.reset(); }) == "ZeRO stage not stated");
  CHECK(changed([](Run& run) { run.recompute = "selective (op)"; }) ==
        "recomputation of some operations or layers");
  CHECK(changed([](Run& run) { run.layers.reset(); }) == "the model's shape is not stated");
  CHECK(changed([](Run& run) { run.data_parallel = 4; }) == "GPUs are not dp x tp");
  CHECK(changed([](Run& run) { run.memory.reset(), run.step_seconds.reset(); }) ==
        "nothing measured: no memory, step time or OOM");
  CHECK(changed([](Run& run) { run.shard_ranks = 8; }) == "modelled");
  CHECK(changed([](Run& run) { run.heads = 15; }).starts_with("refused by the planner: "));
}

TEST_CASE("a block that no column names is told by the parameter count") {
  // Llama-2-7B: 6.738 billion; the same shape as a GPT block would be 5.7.
  Run run = plain_run();
  run.block.reset();
  run.layers = 32;
  run.hidden = 4096;
  run.heads = run.kv_heads = 32;
  run.ffn = 11008;
  run.vocabulary = 32000;
  run.parameters_billions = 6.74;
  CHECK(modelled(run).model.gated_ffn);
  run.parameters_billions = 9;
  CHECK(reason(run) == "the kind of model is not stated, and not known by its parameter count");
}
