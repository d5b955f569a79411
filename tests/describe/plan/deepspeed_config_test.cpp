#include "planner/describe/plan/deepspeed_config.hpp"

#include <doctest/doctest.h>

#include <string>

#include "tests/describe/plan/plan_support.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;
using zeroplan::testing::contains;
using zeroplan::testing::problems_of;

namespace {

DeepSpeedConfig reading(const std::string& json) {
  return read_deepspeed_config(parse_json(json, "ds.json"));
}

DeepSpeedConfig with_zero(const std::string& members) {
  return reading("{\"zero_optimization\": {" + members + "}}");
}

std::string wrong(const std::string& json) {
  return problems_of([&] { reading(json); });
}

std::string notes(const DeepSpeedConfig& config) {
  std::string text;
  for (const std::string& note : config.file.options.notes) text += note + "\n";
  return text;
}

}  // namespace

TEST_CASE("R32: auto sizes follow from the hidden size") {
  const DeepSpeedConfig config = with_zero(
      "\"stage\": 3, \"reduce_bucket_size\": \"auto\", \"stage3_prefetch_bucket_size\": \"auto\", "
      "\"stage3_param_persistence_threshold\": \"auto\", \"sub_group_size\": 1e9");
  const DeepSpeedSizes sizes = resolve_automatic_sizes(config, 4096, "ds.json");
  CHECK(sizes.reduce_bucket == 16777216);
  CHECK(sizes.prefetch_bucket == 15099494);
  CHECK(sizes.parameter_persistence_threshold == 40960);
  CHECK(sizes.sub_group == 1'000'000'000);
  CHECK(config.file.options.bucket_from_hidden);

  const std::string text = problems_of([&] { resolve_automatic_sizes(config, std::nullopt, "ds.json"); });
  CHECK(contains(text, "ds.json:1: zero_optimization.reduce_bucket_size: found \"auto\""));
  CHECK(contains(text, "stage3_prefetch_bucket_size"));
  CHECK(contains(text, "stage3_param_persistence_threshold"));
}

TEST_CASE("R33: keys with and without stage3_, defaults where buckets are missing") {
  const DeepSpeedConfig config = with_zero(
      "\"stage\": 3, \"sub_group_size\": 0, \"max_live_parameters\": 0, \"max_reuse_distance\": 0, "
      "\"gather_16bit_weights_on_model_save\": true");
  CHECK(config.file.options.zero == 3);
  CHECK(config.sizes.max_live_parameters == 0);
  CHECK(config.sizes.max_reuse_distance == 0);
  CHECK(config.sizes.sub_group == 0);
  CHECK(config.sizes.reduce_bucket == 500'000'000);
  CHECK(config.file.options.bucket_elements == 500'000'000);
  CHECK(static_cast<double>(2 * config.sizes.reduce_bucket) / static_cast<double>(kGiB) ==
        doctest::Approx(0.931).epsilon(0.001));
  CHECK(config.file.options.notes.size() == 3);
  CHECK(contains(notes(config), "zero_optimization.sub_group_size: found \"0\", which is not modelled"));
  CHECK(with_zero("\"stage\": 3, \"sub_group_size\": 1000000000, \"contiguous_gradients\": true")
            .file.options.notes.empty());
  CHECK(with_zero("\"stage3_max_live_parameters\": 7").sizes.max_live_parameters == 7);
  CHECK(contains(
      wrong("{\"zero_optimization\": {\"max_live_parameters\": 1, \"stage3_max_live_parameters\": 2}}"),
      "expected one of them"));
}

TEST_CASE("R35: odd bucket values") {
  CHECK(contains(wrong("{\"zero_optimization\": {\n\"reduce_bucket_size\": 0}}"),
                 "ds.json:2: zero_optimization.reduce_bucket_size: found \"0\""));
  CHECK(with_zero("\"reduce_bucket_size\": 500000000.0").sizes.reduce_bucket == 500'000'000);
  CHECK(with_zero("\"reduce_bucket_size\": \"200000000.0\"").sizes.reduce_bucket == 200'000'000);
  const DeepSpeedConfig text = with_zero("\"stage\": 2, \"overlap_comm\": \"true\"");
  CHECK(contains(notes(text), "zero_optimization.overlap_comm: \"true\" is text, taken as the boolean true"));
  CHECK(text.file.options.overlap == true);
  CHECK(with_zero("\"stage\": 3, \"overlap_comm\": false").file.options.overlap == false);
  CHECK_FALSE(with_zero("\"stage\": 2").file.options.overlap.has_value());

  // Larger than the model: capped at the gradient, 2 bytes for each of GPT-2's 124,439,808 parameters.
  PlanOptions options = with_zero("\"reduce_bucket_size\": 5e8").file.options;
  options.dtype = Precision::fp16;
  options.seq = 1024;
  CHECK(resolve_plan(options, resolve_model("gpt2"), "v100-32gb").plan.bucket_bytes == 248'879'616);
}

TEST_CASE("batch, precision, optimizer and offload") {
  const PlanFile file = reading(R"({
    "train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto",
    "fp16": {"enabled": false}, "bf16": {"enabled": true}, "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
    "scheduler": {"type": "WarmupLR"},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true},
                          "offload_param": {"device": "cpu"}},
    "activation_checkpointing": {"partition_activations": true, "cpu_checkpointing": false},
    "tensor_parallel": {"autotp_size": 2}
  })")
                            .file;
  const PlanOptions& options = file.options;
  CHECK(options.engine == "deepspeed");
  CHECK(options.global_batch == 64);
  CHECK(options.micro_batch == 4);
  CHECK_FALSE(options.grad_accum.has_value());
  CHECK(options.dtype == Precision::bf16);
  CHECK(options.optimizer == "adam");
  CHECK(options.offload == Offload::all);
  CHECK(options.partition_activations == true);
  CHECK(options.recompute == Recompute::full);
  CHECK(options.tp == 2);
  CHECK(file.missing == std::vector<std::string>{"model", "hw", "seq"});

  CHECK(reading("{\"train_batch_size\": 8}").file.options.dtype == Precision::fp32);
  CHECK_FALSE(reading("{\"fp16\": {\"enabled\": \"auto\"}}").file.options.dtype.has_value());
  CHECK(reading(R"({"optimizer": {"type": "SGD", "params": {"momentum": 0.9}}})").file.options.optimizer ==
        "sgd-momentum");
  CHECK(with_zero("\"stage\": 2, \"cpu_offload\": true").file.options.offload == Offload::optimizer);
}

TEST_CASE("parameters are offloaded at stage 3 only, as in DeepSpeed") {
  const DeepSpeedConfig config =
      with_zero(R"("stage": 2, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"})");
  CHECK(config.file.options.offload == Offload::optimizer);
  CHECK(contains(notes(config), "zero_optimization.offload_param: valid with stage 3 only"));
}

TEST_CASE("what cannot be planned is refused or noted") {
  CHECK(contains(wrong("{\"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": true}}"), "both enabled"));
  CHECK(contains(wrong("{\"zero_optimization\": {\"stage\": 4}}"), "zero_optimization.stage: found \"4\""));
  CHECK(contains(wrong("{\"zero_optimization\": true}"), "expected a map"));
  CHECK(contains(wrong("{\"zero_optimization\": {\"offload_param\": {\"device\": \"nvme\"}}}"),
                 "not modelled"));
  CHECK(contains(wrong("{\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"cpu\"}}}"),
                 "without the optimizer"));
  CHECK(contains(wrong("{\"optimizer\": {\"type\": \"Lamb\"}}"), "optimizer.type: found \"Lamb\""));
  CHECK(contains(wrong("{\"train_micro_batch_size_per_gpu\": -1}"), "train_micro_batch_size_per_gpu"));
  CHECK(contains(notes(with_zero("\"stage\": 3, \"reduce_buket_size\": 5")), "nearest: reduce_bucket_size"));
  CHECK(contains(notes(with_zero("\"zero_quantized_weights\": true")), "ZeRO++"));
}
