#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "planner/describe/plan/plan.hpp"
#include "tests/describe/plan/plan_support.hpp"
#include "tests/describe/text/csv_table.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;
using zeroplan::testing::assumed;
using zeroplan::testing::contains;
using zeroplan::testing::options_of;
using zeroplan::testing::problems_of;
using zeroplan::testing::read_csv;
using zeroplan::testing::refusal;
using zeroplan::testing::resolved;

// Z6: the runs of the ZeRO paper, arXiv 1910.02054v3, Tables 5 to 10: total batch = batch x gpus / mp. Heads
// divide hidden and mp divides heads in every row.
TEST_CASE("every run of the ZeRO paper's appendix is a valid plan with the printed batch") {
  const auto rows = read_csv(ZEROPLAN_TEST_DATA "/zero_appendix_runs.csv");
  REQUIRE(rows.size() == 48);
  for (const auto& row : rows) {
    CAPTURE(row.at("figure"));
    CAPTURE(row.at("model"));
    const std::string shape = "layers=" + row.at("layers") + ",hidden=" + row.at("hidden") +
                              ",heads=" + row.at("heads") + ",vocab=50257";
    const ResolvedPlan resolution =
        resolved("gpus=" + row.at("gpus") + " mp=" + row.at("mp") + " micro_batch=" + row.at("batch"), shape,
                 "v100-32gb");
    CHECK(resolution.plan.data_parallel == std::stoll(row.at("gpus")) / std::stoll(row.at("mp")));
    CHECK(resolution.plan.global_batch() == std::stoll(row.at("total_batch")));
    CHECK(resolution.cluster.devices() == std::stoll(row.at("gpus")));
  }
}

TEST_CASE("R13: with 8 GPUs and 8-way model parallelism ZeRO partitions nothing") {
  const ResolvedPlan one = resolved("gpus=8 tp=8 zero=2", "llama2-7b", "a100-80gb");
  CHECK(one.plan.data_parallel == 1);
  CHECK(assumed(one, "dp") == "1");
  bool told = false;
  for (const Assumption& assumption : one.assumptions)
    told = told || contains(assumption.reason, "nothing to partition");
  CHECK(told);
  const ResolvedPlan many = resolved("gpus=64 tp=8 zero=2", "llama2-7b", "a100-80gb");
  CHECK(many.plan.data_parallel == 8);
}

TEST_CASE("devices and degrees follow from each other") {
  SUBCASE("a device alone: as many as dp x tp") {
    CHECK(resolved("", "gpt2", "v100-32gb").plan.devices() == 1);
    const ResolvedPlan plan = resolved("dp=4 tp=3", "gpt2", "v100-32gb");
    CHECK(plan.plan.devices() == 12);
    CHECK(plan.cluster.devices() == 12);
    CHECK(assumed(plan, "gpus") == "12");
    CHECK(resolved("tp=4", "gpt2", "v100-32gb").plan.devices() == 4);
  }
  SUBCASE("a node or a cluster: all of it") {
    const ResolvedPlan node = resolved("tp=4", "gpt2", "dgx2");
    CHECK(node.plan.data_parallel == 4);
    CHECK(assumed(node, "gpus") == "16");
    const ResolvedPlan cluster = resolved("tp=4", "gpt2", "zero-paper");
    CHECK(cluster.plan.data_parallel == 100);
    CHECK(resolved("nodes=4", "gpt2", "dgx2").plan.data_parallel == 64);
    CHECK(resolved("nodes=4 dp=32", "gpt2", "dgx2").plan.tensor_parallel == 2);
  }
  SUBCASE("tp larger than a node takes more nodes") {
    const ResolvedPlan plan = resolved("tp=32", "llama2-7b", "dgx2");
    CHECK(plan.plan.data_parallel == 1);
    CHECK(plan.cluster.nodes == 2);
  }
  SUBCASE("gpus and dp give tp") {
    const ResolvedPlan plan = resolved("gpus=12 dp=3", "gpt2", "v100-32gb");
    CHECK(plan.plan.tensor_parallel == 4);
    CHECK(assumed(plan, "tp") == "4");
  }
  SUBCASE("what does not divide is refused with the nearest that does") {
    CHECK(contains(refusal("gpus=400 tp=32", "layers=2,hidden=64,heads=32,vocab=100", "v100-32gb"),
                   "--gpus: 400 GPUs are not a multiple of --tp 32; nearest: 384 or 416"));
    CHECK(contains(refusal("tp=3", "gpt2", "dgx2"),
                   "--tp: 16 GPUs are not a multiple of --tp 3; nearest: 2 or 4"));
    CHECK(contains(refusal("gpus=64 dp=8 tp=4", "gpt2", "v100-32gb"),
                   "--gpus: found 64 GPUs, expected dp x tp = 8 x 4 = 32"));
    CHECK(contains(refusal("gpus=8 dp=3", "gpt2", "v100-32gb"), "not a multiple of --dp 3; nearest: 6 or 9"));
  }
}

TEST_CASE("two of micro-batch, accumulation and global batch give the third") {
  const auto plan = [](const std::string& words) {
    return resolved("dp=4 " + words, "gpt2", "v100-32gb").plan;
  };
  CHECK(plan("").global_batch() == 4);
  CHECK(plan("micro_batch=3 grad_accum=5").global_batch() == 60);
  CHECK(plan("micro_batch=3 global_batch=60").gradient_accumulation == 5);
  CHECK(plan("grad_accum=5 global_batch=60").micro_batch == 3);
  CHECK(plan("global_batch=60").gradient_accumulation == 15);
  CHECK(plan("micro_batch=3 grad_accum=5 global_batch=60").global_batch() == 60);

  CHECK(contains(
      refusal("dp=8 micro_batch=3 global_batch=100", "gpt2", "v100-32gb"),
      "--global-batch: found \"100\", expected a multiple of micro_batch x dp = 3 x 8 = 24 (100 % 24 = 4); "
      "nearest: 96 or 120"));
  CHECK(contains(refusal("dp=8 global_batch=4", "gpt2", "v100-32gb"), "nearest: 8"));
  CHECK(contains(refusal("dp=4 micro_batch=3 grad_accum=5 global_batch=61", "gpt2", "v100-32gb"),
                 "expected micro_batch x grad_accum x dp = 3 x 5 x 4 = 60"));
}

TEST_CASE("defaults are told as assumptions, values of the user are not") {
  const ResolvedPlan plain = resolved("", "gpt2", "v100-32gb");
  CHECK(plain.plan.sequence == 1024);
  CHECK(plain.plan.precision == Precision::fp16);  // no bf16 on Volta
  CHECK(plain.plan.zero_stage == 0);
  CHECK(plain.plan.optimizer->name == "adam");
  CHECK(plain.plan.engine->name == "deepspeed");  // on GPUs one that people run there
  CHECK(assumed(plain, "node") == "dgx2");
  for (const char* key :
       {"gpus", "dp", "tp", "zero", "micro_batch", "grad_accum", "seq", "dtype", "optimizer", "recompute",
        "attention", "dropout", "engine", "bucket", "contiguous_memory"}) {
    CAPTURE(key);
    CHECK_FALSE(assumed(plain, key).empty());
  }
  const ResolvedPlan set = resolved(
      "gpus=2 dp=2 tp=1 zero=1 micro_batch=1 grad_accum=1 global_batch=2 seq=512 dtype=fp32 optimizer=sgd "
      "recompute=none "
      "attention=flash dropout=off engine=deepspeed bucket=1MiB contiguous_memory=on overlap=on",
      "gpt2", "dgx2");
  for (const Assumption& assumption : set.assumptions) FAIL_CHECK(assumption.key);

  const ResolvedPlan native = resolved("engine=native", "gpt2", "v100-32gb");
  CHECK(native.plan.contiguous_memory);
  CHECK_FALSE(resolved("engine=deepspeed", "gpt2", "v100-32gb").plan.contiguous_memory);
  CHECK(native.plan.overlap);
  CHECK_FALSE(resolved("dp=2 zero=2 engine=deepspeed", "gpt2", "v100-32gb").plan.overlap);
  CHECK(resolved("dp=2 zero=3 engine=deepspeed", "gpt2", "v100-32gb").plan.overlap);
  CHECK(assumed(resolved("dp=2 zero=2 engine=deepspeed", "gpt2", "v100-32gb"), "overlap") == "off");
  CHECK_FALSE(resolved("dp=2 zero=3 overlap=off", "gpt2", "v100-32gb").plan.overlap);
  CHECK(resolved("", "llama3-8b", "a100-80gb").plan.precision == Precision::bf16);
  CHECK(resolved("", "llama3-8b", "a100-80gb").plan.sequence == 4096);  // the model takes 8192
  CHECK(resolved("", "gpt2", "cpu").plan.precision == Precision::fp32);
  CHECK(resolved("", "gpt2", "cpu").plan.engine->name == "native");
  CHECK(assumed(resolved("", "gpt2", "cpu"), "engine") == "native");
  CHECK(contains(assumed(resolved("dtype=bf16", "gpt2", "v100-32gb"), "dtype"), "bf16"));
  CHECK(assumed(resolved("dtype=bf16", "gpt2", "a100-80gb"), "dtype").empty());
}

TEST_CASE("what one choice needs is chosen with it") {
  CHECK(resolved("offload=all", "gpt2", "v100-32gb").plan.zero_stage == 3);
  CHECK(resolved("offload=optimizer", "gpt2", "v100-32gb").plan.zero_stage == 2);
  const Plan moved = resolved("tp=4 offload_activations=on", "gpt2", "v100-32gb").plan;
  CHECK(moved.partition_activations);
  CHECK(moved.recompute == Recompute::full);
  CHECK(resolved("checkpoint_interval=2", "gpt2", "v100-32gb").plan.recompute == Recompute::full);
  CHECK(contains(refusal("checkpoint_interval=2 recompute=none", "gpt2", "v100-32gb"),
                 "expected recompute full"));
}

TEST_CASE("the bucket: the engine's, the user's, automatic, and never larger than the gradient") {
  CHECK(resolved("engine=native", "gpt2-xl", "v100-32gb").plan.bucket_bytes == 8 * kMiB);
  CHECK(resolved("bucket=1MiB", "gpt2-xl", "v100-32gb").plan.bucket_bytes == kMiB);
  // 124,439,808 parameters of GPT-2 in fp16; DeepSpeed's bucket is 1 GB.
  const ResolvedPlan capped = resolved("engine=deepspeed seq=1024", "gpt2", "v100-32gb");
  CHECK(capped.plan.bucket_bytes == 2 * 124'439'808);
  CHECK(assumed(capped, "bucket") == "248879616B");

  PlanOptions automatic = options_of("engine=deepspeed dtype=bf16");
  automatic.bucket_from_hidden = true;
  CHECK(resolve_plan(automatic, resolve_model("llama2-7b"), "a100-80gb").plan.bucket_bytes ==
        2 * 4096 * 4096);
  CHECK(contains(problems_of([&] { resolve_plan(automatic, resolve_model("params=7B"), "a100-80gb"); }),
                 "--bucket: found \"auto\""));
  PlanOptions counted = options_of("dtype=fp32 seq=128");
  counted.bucket_elements = 1'000'000;
  CHECK(resolve_plan(counted, resolve_model("gpt2-xl"), "a100-80gb").plan.bucket_bytes == 4'000'000);
  CHECK(contains(refusal("bucket=1MiB constant_buffers=off", "gpt2", "v100-32gb"), "--bucket: "));
}

TEST_CASE("an engine refuses a stage that it does not have, with the nearest that it has") {
  const auto said = [](const std::string& words) { return refusal("dp=8 " + words, "gpt2", "dgx-a100"); };
  CHECK(
      contains(said("engine=fsdp2 zero=1"), "--zero: found \"1\", expected a stage that fsdp2 has: 0, 2, 3"));
  CHECK(contains(said("engine=fsdp2 zero=1"), "nearest: 2"));
  CHECK(contains(said("engine=llm-foundry zero=1"), "nearest: 2"));
  for (const char* zero : {"2", "3"}) {
    CHECK(contains(said(std::string("engine=megatron zero=") + zero), "that megatron has: 0, 1; nearest: 1"));
  }
  for (const char* words : {"engine=fsdp2 zero=2", "engine=fsdp2 zero=3", "engine=megatron zero=1",
                            "engine=deepspeed zero=1", "engine=megatron-deepspeed zero=3"}) {
    CHECK(said(words).empty());
  }
}

TEST_CASE("a reserve leaves something") {
  CHECK(resolved("reserve=30GB", "gpt2", "v100-32gb").plan.reserve_bytes == 30'000'000'000);
  CHECK(contains(refusal("reserve=40GB", "gpt2", "v100-32gb"), "--reserve: found \"40000000000\""));
}

TEST_CASE("a parameter count is planned without activations, and says so") {
  const ResolvedPlan plan = resolved("gpus=64 zero=3", "params=7.5B", "v100-32gb");
  CHECK(plan.plan.data_parallel == 64);
  CHECK(assumed(plan, "activation") == "not counted");
}

TEST_CASE("problems stand where the value was written, all in one pass") {
  const PlanFile file = read_plan_yaml(parse_yaml("zero: 0\noffload: all\nseq: 4096\n", "mine.yaml"));
  const PlanOptions options = merge(file.options, options_of("tp=5 gpus=7"));
  const std::string text = problems_of([&] { resolve_plan(options, resolve_model("gpt2"), "v100-32gb"); });
  const PlanFile stage = read_plan_yaml(parse_yaml("engine: fsdp2\nzero: 1\n", "mine.yaml"));
  CHECK(contains(problems_of([&] { resolve_plan(stage.options, resolve_model("gpt2"), "dgx-a100"); }),
                 "mine.yaml:2: zero: found \"1\", expected a stage that fsdp2 has"));
  CHECK(contains(text, "mine.yaml:2: offload: found \"all\" with zero 0"));
  CHECK(contains(text, "mine.yaml:3: seq: found \"4096\""));
  CHECK(contains(text, "--gpus: 7 GPUs are not a multiple of --tp 5"));
  CHECK(contains(text, "--tp: found \"5\", expected a divisor of 12 attention heads"));
  CHECK(contains(refusal("tp=5", "gpt2", "v1000"), "--hw: "));
}

TEST_CASE("selective recomputation under flash attention is told to be none") {
  const auto told = [](const std::string& plan) {
    const ResolvedPlan one = resolved(plan, "gpt2-xl", "a100-80gb");
    return std::any_of(one.assumptions.begin(), one.assumptions.end(), [](const Assumption& assumption) {
      return assumption.reason.find("the same as none here") != std::string::npos;
    });
  };
  CHECK(told("recompute=selective"));
  CHECK(told("recompute=selective attention=flash"));
  CHECK_FALSE(told("recompute=selective attention=materialized"));
  CHECK_FALSE(told("recompute=none"));
}
