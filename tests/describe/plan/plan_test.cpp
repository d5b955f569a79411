#include "planner/describe/plan/plan.hpp"

#include <doctest/doctest.h>

#include <string>

#include "tests/describe/plan/plan_support.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;
using zeroplan::testing::contains;
using zeroplan::testing::options_of;
using zeroplan::testing::problems_of;

namespace {

PlanFile reading(const std::string& text) { return read_plan_yaml(parse_yaml(text, "plan.yaml")); }

std::string wrong(const std::string& text) {
  return problems_of([&] { reading(text); });
}

std::string wrong_option(const std::string& word) {
  return problems_of([&] { options_of(word); });
}

}  // namespace

TEST_CASE("a plan file sets every key that plan_keys lists") {
  const PlanFile file = reading(
      "schema: zeroplan.plan/1\nmodel: gpt2-xl\nhw: dgx2\n"
      "gpus: 16\nnodes: 1\ndp: 8\ntp: 2\nzero: 2\nshard: 4\nsecondary_shard: 2\nmicro_batch: 4\ngrad_accum: "
      "3\nglobal_batch: 96\nseq: "
      "1_024\n"
      "dtype: fp16\noptimizer: adamw\nrecompute: full\ncheckpoint_interval: 2\nattention: materialised\n"
      "dropout: on\npartition_activations: yes\noffload_activations: false\noffload: optimizer\n"
      "constant_buffers: true\nbucket: 64 MiB\ncontiguous_memory: off\noverlap: off\nengine: "
      "deepspeed\nreserve: 1.5GB\nhost_memory: 512GiB\n");
  CHECK(file.model == "gpt2-xl");
  CHECK(file.hardware == "dgx2");
  const PlanOptions& options = file.options;
  CHECK(options.origins.size() == plan_keys().size());
  CHECK(options.gpus == 16);
  CHECK(options.nodes == 1);
  CHECK(options.dp == 8);
  CHECK(options.tp == 2);
  CHECK(options.zero == 2);
  CHECK(options.shard == 4);
  CHECK(options.secondary_shard == 2);
  CHECK(options.micro_batch == 4);
  CHECK(options.grad_accum == 3);
  CHECK(options.global_batch == 96);
  CHECK(options.seq == 1024);
  CHECK(options.dtype == Precision::fp16);
  CHECK(options.optimizer == "adamw");
  CHECK(options.recompute == Recompute::full);
  CHECK(options.checkpoint_interval == 2);
  CHECK(options.attention == AttentionKernel::materialized);
  CHECK(options.dropout == true);
  CHECK(options.partition_activations == true);
  CHECK(options.offload_activations == false);
  CHECK(options.offload == Offload::optimizer);
  CHECK(options.constant_buffers == true);
  CHECK(options.bucket == 64 * kMiB);
  CHECK(options.contiguous_memory == false);
  CHECK(options.overlap == false);
  CHECK(options.engine == "deepspeed");
  CHECK(options.reserve == 1'500'000'000);
  CHECK(options.host_memory == 512 * kGiB);
}

TEST_CASE("keys have aliases, '-' and '_' are alike, null leaves a key open") {
  CHECK(reading("mp: 4\n").options.tp == 4);
  CHECK(reading("zero-stage: 1\n").options.zero == 1);
  CHECK(reading("global-batch: 8\n").options.global_batch == 8);
  CHECK_FALSE(reading("tp: null\n").options.tp.has_value());
  CHECK(options_of("grad-accum=2").grad_accum == 2);
  CHECK(options_of("dtype=bfloat16").dtype == Precision::bf16);
}

TEST_CASE("a wrong plan file gives one problem for each key, with file and line") {
  CHECK(wrong("tp: 0\n") == "plan.yaml:1: tp: found \"0\", expected a whole number from 1 to 1000000\n");
  CHECK(contains(wrong("zero: 4\n"), "expected a whole number from 0 to 3"));
  CHECK(contains(wrong("zero: 012\n"), "plan.yaml:1: zero: found \"012\""));
  CHECK(contains(wrong("seq: 1e400\n"), "seq"));
  CHECK(contains(wrong("micro_batch: nan\n"), "micro_batch"));
  CHECK(contains(wrong("micro_batch: 1.5\n"), "micro_batch"));
  CHECK(contains(wrong("bucket: 0\n"), "plan.yaml:1: bucket: found \"0\""));
  CHECK(contains(wrong("bucket: 4G\n"), "bucket"));
  CHECK(contains(wrong("tp: [1, 2]\n"), "found a list"));
  CHECK(contains(wrong("dtype: fp61\n"), "expected one of fp32, fp16, bf16; nearest: fp16"));
  CHECK(contains(wrong("offload: gpu\n"), "expected one of none, optimizer, all"));
  CHECK(contains(wrong("optimizer: adm\n"), "nearest: adam"));
  CHECK(contains(wrong("micro_bach: 4\n"), "plan.yaml:1: micro_bach: unknown key; nearest: micro_batch"));
  CHECK(contains(wrong("mbs: 4\n"), "plan.yaml:1: mbs: this is --micro-batch here"));
  CHECK(contains(wrong("colour: 4\n"), "unknown key"));
  CHECK(contains(wrong("tp: 2\nmp: 2\n"), "plan.yaml:2: mp: the same as tp in line 1"));
  CHECK(contains(wrong("schema: zeroplan.plan/2\n"), "expected zeroplan.plan/1"));
  CHECK(contains(wrong("- tp\n"), "expected a map"));
  const std::string all = wrong("tp: x\nzero: 9\nfoo: 1\n");
  CHECK(contains(all, "plan.yaml:1: tp"));
  CHECK(contains(all, "plan.yaml:2: zero"));
  CHECK(contains(all, "plan.yaml:3: foo"));
}

TEST_CASE("an option of the command line is named once") {
  CHECK(wrong_option("micro-batch=0") ==
        "--micro-batch: found \"0\", expected a whole number from 1 to 1000000\n");
  PlanOptions options;
  Problems problems;
  set_plan_option(options, "tp", zeroplan::testing::scalar("no"), "--set", problems);
  REQUIRE(problems.list().size() == 1);
  CHECK(contains(problems.list()[0].text(), "--set: tp: found \"no\""));
}

TEST_CASE("merging lets the second win and keeps the rest") {
  const PlanOptions merged = merge(options_of("tp=2 zero=1 bucket=1MiB"), options_of("zero=3 seq=8"));
  CHECK(merged.tp == 2);
  CHECK(merged.zero == 3);
  CHECK(merged.seq == 8);
  CHECK(merged.bucket == kMiB);

  PlanOptions from_elements;
  from_elements.bucket_elements = 500;
  CHECK(merge(from_elements, options_of("bucket=2MiB")).bucket == 2 * kMiB);
  CHECK_FALSE(merge(options_of("bucket=2MiB"), from_elements).bucket.has_value());
}

TEST_CASE("names of values and options") {
  CHECK(option_name("partition_activations") == "--partition-activations");
  CHECK(name_of(Precision::bf16) == "bf16");
  CHECK(name_of(Recompute::selective) == "selective");
  CHECK(name_of(AttentionKernel::materialized_fp32) == "materialized_fp32");
  CHECK(name_of(Offload::all) == "all");
  CHECK(bytes_of(Precision::fp32) == 4);
}
