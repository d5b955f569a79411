#include "planner/describe/text/foreign_file.hpp"

#include <doctest/doctest.h>

#include <string>

#include "tests/describe/plan/plan_support.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;
using zeroplan::testing::contains;
using zeroplan::testing::problems_of;

namespace {

std::string as_plan(const std::string& text) {
  return problems_of([&] { read_plan_document(parse_yaml(text, "their.yaml")); });
}

std::string as_text(const std::string& text) {
  return problems_of([&] { refuse_foreign_text(text, "their.txt"); });
}

std::string as_model(const std::string& text) {
  return problems_of([&] { refuse_foreign_model(parse_yaml(text, "their.yaml")); });
}

}  // namespace

// In our own words after the public forms: EleutherAI/gpt-neox configs, mosaicml/llm-foundry scripts/train/yamls,
// transformers TrainingArguments, axolotl examples, LLaMA-Factory examples, pytorch/torchtitan train_configs,
// NVIDIA/Megatron-LM examples.
TEST_CASE("files of other programs are refused as what they are, with the options that say the same") {
  const std::string neox = as_plan(R"({"pipe-parallel-size": 1, "model-parallel-size": 2, "num-layers": 24,
    "hidden-size": 1024, "num-attention-heads": 16, "seq-length": 2048, "zero_optimization": {"stage": 1},
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "fp16": {"enabled": true}})");
  CHECK(contains(neox, "their.yaml:1: the file is the configuration of GPT-NeoX (it has pipe_parallel_size"));
  CHECK(contains(neox, "--tp 2 (model_parallel_size)"));
  CHECK(contains(neox, "--micro-batch 4 (train_micro_batch_size_per_gpu)"));
  CHECK(contains(neox, "layers=24 (num_layers)"));

  const std::string foundry = as_plan(
      "max_seq_len: 2048\nglobal_train_batch_size: 256\ndevice_train_microbatch_size: 4\nprecision: "
      "amp_bf16\n"
      "model: {name: mpt_causal_lm, d_model: 768}\nfsdp_config: {sharding_strategy: FULL_SHARD}\n"
      "train_loader: {dataset: c4}\n");
  CHECK(contains(foundry, "the configuration of llm-foundry"));
  CHECK(contains(foundry, "--global-batch 256"));

  const std::string trainer = as_plan(
      "output_dir: out\nper_device_train_batch_size: 8\ngradient_accumulation_steps: 4\nlearning_rate: 1e-4\n"
      "num_train_epochs: 3\nbf16: true\ndeepspeed: ds.json\n");
  CHECK(contains(trainer, "Hugging Face's Trainer"));
  CHECK(contains(trainer, "--micro-batch 8"));
  CHECK(contains(trainer, "-f ds.json (deepspeed)"));

  CHECK(contains(
      as_plan("base_model: meta-llama/Llama-2-7b-hf\nsequence_len: 4096\nsample_packing: true\n"
              "micro_batch_size: 2\ngradient_accumulation_steps: 4\nadapter: lora\nfsdp_config: {}\n"),
      "the configuration of axolotl"));
  CHECK(contains(
      as_plan("model_name_or_path: x\nstage: sft\nfinetuning_type: full\ntemplate: llama3\ncutoff_len: 2048\n"
              "per_device_train_batch_size: 1\ngradient_accumulation_steps: 8\n"),
      "the configuration of LLaMA-Factory"));
  CHECK(
      contains(as_plan("model_type: llama\nhidden_act: silu\nvocab_size: 32000\n"), "is the MODEL argument"));

  const std::string titan = as_text(
      "[job]\ndump_folder = \"./outputs\"\n\n[model]\nname = \"llama3\"\n\n[training]\nlocal_batch_size = 8\n"
      "seq_len = 8192\n\n[parallelism]\ntensor_parallel_degree = 1\n");
  CHECK(contains(titan, "their.txt:1: the file is the configuration of torchtitan"));
  CHECK(contains(titan, "--micro-batch 8 (local_batch_size)"));
  CHECK(contains(titan, "--seq 8192"));

  const std::string megatron = as_text(
      "#!/bin/bash\nGPT_ARGS=\"\n    --num-layers 24 \\\n    --hidden-size 1024 \\\n    --micro-batch-size=4 "
      "\\\n"
      "    --tensor-model-parallel-size 2\"\ntorchrun pretrain_gpt.py $GPT_ARGS\n");
  CHECK(contains(megatron, "their.txt:3: the file is the arguments of Megatron-LM"));
  CHECK(contains(megatron, "--tp 2"));
  CHECK(contains(megatron, "--micro-batch 4"));
}

TEST_CASE("one shared key makes no file foreign, and ours are never taken for another's") {
  CHECK(contains(as_plan("micro_batch: 1\nseq_length: 1024\n"), "seq_length: "));
  CHECK(as_plan("{\"train_batch_size\": 8, \"fp16\": {\"enabled\": true}}").empty());
  CHECK(as_plan("distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\nmixed_precision: bf16\n").empty());
  CHECK(as_text("schema: zeroplan.plan/1\nmodel: gpt2\nzero: 2\n").empty());
  CHECK(as_text("").empty());
}

TEST_CASE("a plan that is given as a model is refused as a plan") {
  CHECK(contains(as_model("zero_optimization: {stage: 2}\n"), "give it with -f"));
  CHECK(contains(as_model("num_layers: 24\nhidden_size: 1024\npipe_parallel_size: 1\n"), "GPT-NeoX"));
  CHECK(as_model("schema: zeroplan.model/1\nhidden: 64\n").empty());
  CHECK(as_model("model_type: llama\nhidden_size: 64\nnum_attention_heads: 8\n").empty());
}
