#include <doctest/doctest.h>

#include <string>

#include "planner/describe/plan/plan.hpp"
#include "tests/describe/plan/plan_support.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;
using zeroplan::testing::contains;

namespace {

std::string broken(const Plan& plan, const Model& model) {
  Problems problems;
  check_plan(plan, model, problems);
  std::string text;
  for (const Problem& problem : problems.list()) text += problem.text() + "\n";
  return text;
}

std::string broken(const Plan& plan, const std::string& model) { return broken(plan, resolve_model(model)); }

Plan with_tp(std::int64_t tp) {
  Plan plan;
  plan.tensor_parallel = tp;
  return plan;
}

}  // namespace

TEST_CASE("the tensor-parallel degree divides heads, hidden and MLP width") {
  // GPT-2 XL: 25 heads, hidden 1600.
  CHECK(broken(with_tp(1), "gpt2-xl").empty());
  CHECK(broken(with_tp(5), "gpt2-xl").empty());
  CHECK(broken(with_tp(25), "gpt2-xl").empty());
  const std::string two = broken(with_tp(2), "gpt2-xl");
  CHECK(two == "--tp: found \"2\", expected a divisor of 25 attention heads (25 % 2 = 1); nearest: 1 or 5\n");
  CHECK(contains(broken(with_tp(26), "gpt2-xl"), "nearest: 25\n"));
  CHECK(contains(broken(with_tp(1'000'000), "gpt2-xl"), "nearest: 25\n"));
}

TEST_CASE("key-value heads are divided, or held by several ranks") {
  // Llama 3 8B: 32 heads, 8 key-value heads.
  for (const std::int64_t tp : {1, 2, 4, 8, 16, 32}) CHECK(broken(with_tp(tp), "llama3-8b").empty());
  // 12 heads with 4 key-value heads: tp 6 divides the heads, but neither 4 / 6 nor 6 / 4 is whole.
  const std::string shape = "layers=2,hidden=768,heads=12,kv_heads=4,vocab=1000";
  CHECK(broken(with_tp(12), shape).empty());
  CHECK(contains(broken(with_tp(6), shape),
                 "expected a divisor or a multiple of the 4 key-value heads; nearest: 4 or 12"));
}

TEST_CASE("experts are divided by their own width") {
  Model model = resolve_model("mixtral-8x7b");
  model.experts->expert_ffn = 14337;
  CHECK(contains(broken(with_tp(2), model), "14337 expert_ffn (14337 % 2 = 1); nearest: 1"));
  CHECK(broken(with_tp(8), "mixtral-8x7b").empty());
}

TEST_CASE("a learned position table bounds the sequence, rotary positions do not") {
  Plan plan;
  plan.sequence = 1024;
  CHECK(broken(plan, "gpt2").empty());
  plan.sequence = 1025;
  CHECK(contains(broken(plan, "gpt2"), "--seq: found \"1025\", expected at most the 1024 learned positions"));
  // OPT stores 2050 rows for 2048 tokens.
  plan.sequence = 2049;
  CHECK(contains(broken(plan, "opt-1.3b"), "nearest: 2048"));
  plan.sequence = 100'000;
  CHECK(broken(plan, "llama2-7b").empty());
}

TEST_CASE("checkpoints, P_a and its offload build on each other") {
  Plan plan = with_tp(5);
  plan.recompute = Recompute::full;
  plan.partition_activations = true;
  plan.offload_activations = true;
  plan.checkpoint_interval = 48;
  CHECK(broken(plan, "gpt2-xl").empty());

  Plan deep = plan;
  deep.checkpoint_interval = 49;
  CHECK(contains(broken(deep, "gpt2-xl"),
                 "--checkpoint-interval: found \"49\", expected at most the 48 layers"));

  Plan single = plan;
  single.tensor_parallel = 1;
  CHECK(contains(broken(single, "gpt2-xl"), "--partition-activations: found \"on\" with tp 1"));

  Plan kept = plan;
  kept.recompute = Recompute::none;
  const std::string both = broken(kept, "gpt2-xl");
  CHECK(contains(both, "--checkpoint-interval: found \"48\" with recompute none"));
  CHECK(contains(both, "--partition-activations: found \"on\" with recompute none"));

  // DeepSpeed moves whole checkpoints where it does not divide them.
  Plan moved = plan;
  moved.partition_activations = false;
  CHECK(broken(moved, "gpt2-xl").empty());
}

TEST_CASE("offload needs a partition, parameters need stage 3") {
  Plan plan;
  plan.offload = Offload::optimizer;
  CHECK(contains(broken(plan, "gpt2"), "--offload: found \"optimizer\" with zero 0"));
  plan.zero_stage = 1;
  CHECK(broken(plan, "gpt2").empty());
  plan.offload = Offload::all;
  CHECK(contains(broken(plan, "gpt2"), "--offload: found \"all\" with zero 1, expected zero 3"));
  plan.zero_stage = 3;
  CHECK(broken(plan, "gpt2").empty());
}

TEST_CASE("encoder-decoder models are refused by name, parameter counts are taken") {
  CHECK(contains(broken(Plan{}, "t5-11b"), "t5-11b: is an encoder-decoder model"));
  Plan plan = with_tp(7);
  plan.recompute = Recompute::full;
  CHECK(broken(plan, "params=7.5B").empty());
}

TEST_CASE("sizes that leave 63 bits are refused") {
  Plan plan;
  plan.sequence = 100'000'000;
  plan.micro_batch = 1'000'000;
  const std::string flash = broken(plan, "llama3-8b");
  CHECK(contains(flash, "fp32 logits"));
  CHECK_FALSE(contains(flash, "attention scores"));
  // 1 x 32 heads x 1e8^2 x 32 layers x 4 bytes = 4.1e19.
  plan.micro_batch = 1;
  CHECK(broken(plan, "llama3-8b").empty());
  plan.attention = AttentionKernel::materialized_fp32;
  CHECK(contains(broken(plan, "llama3-8b"), "--seq: attention scores"));
}

TEST_CASE("all broken rules are told in one pass") {
  Plan plan = with_tp(3);
  plan.sequence = 4096;
  plan.offload = Offload::all;
  plan.checkpoint_interval = 100;
  const std::string text = broken(plan, "gpt2-xl");
  for (const char* option : {"--tp", "--seq", "--offload", "--checkpoint-interval"}) {
    CHECK(contains(text, option));
  }
}

TEST_CASE("a shard divides the data-parallel ranks, at a stage that shards, with an engine that has it") {
  Plan plan;
  plan.data_parallel = 12;
  plan.zero_stage = 3;
  for (const std::int64_t shard : {0, 2, 3, 4, 6, 12}) {
    plan.shard = shard;
    CHECK(broken(plan, "gpt2").empty());
  }
  plan.shard = 5;
  CHECK(broken(plan, "gpt2") ==
        "--shard: found \"5\", expected a divisor above 1 of the 12 data-parallel ranks; nearest: 4\n");
  plan.shard = 1;
  CHECK(contains(broken(plan, "gpt2"), "nearest: 2\n"));
  plan.data_parallel = 1;
  CHECK(contains(broken(plan, "gpt2"),
                 "--shard: found \"1\", and there is one data-parallel rank, expected none"));
  plan.data_parallel = 12;
  plan.shard = 24;
  CHECK(contains(broken(plan, "gpt2"), "nearest: 12\n"));
  plan.shard = 4;
  plan.zero_stage = 0;
  CHECK(contains(broken(plan, "gpt2"), "--shard: found \"4\" with zero 0, expected zero 1 to 3"));
  plan.zero_stage = 2;
  plan.offload = Offload::optimizer;
  CHECK(contains(broken(plan, "gpt2"),
                 "--shard: found \"4\" with offload optimizer, which is not modelled yet together"));
  plan.offload = Offload::none;
  plan.engine = find_engine("deepspeed");
  CHECK(contains(broken(plan, "gpt2"),
                 "--shard: found \"4\" with zero 2, expected a stage that deepspeed shards inside a "
                 "part of the ranks: 3; nearest: zero 3"));
  plan.engine = find_engine("megatron-v1");
  CHECK(contains(broken(plan, "gpt2"), "megatron-v1 has no hybrid sharding"));
}

TEST_CASE("a second copy of the parameters is for stage 3 alone") {
  Plan plan;
  plan.data_parallel = 8;
  plan.zero_stage = 3;
  plan.engine = find_engine("deepspeed");
  for (const std::int64_t ranks : {0, 2, 4, 8}) {
    plan.secondary_shard = ranks;
    CHECK(broken(plan, "gpt2").empty());
  }
  plan.secondary_shard = 3;
  CHECK(
      contains(broken(plan, "gpt2"), "--secondary-shard: found \"3\", expected a divisor above 1 of the 8"));
  plan.secondary_shard = 4;
  plan.shard = 4;
  CHECK(
      contains(broken(plan, "gpt2"), "--secondary-shard: found \"4\" with shard 4, expected one of the two"));
  plan.shard = 0;
  plan.zero_stage = 2;
  CHECK(contains(broken(plan, "gpt2"), "--secondary-shard: found \"4\" with zero 2, expected zero 3"));
  plan.zero_stage = 3;
  plan.engine = find_engine("fsdp2");
  CHECK(contains(broken(plan, "gpt2"), "fsdp2 has no hpZ, expected engine deepspeed or native"));
}
