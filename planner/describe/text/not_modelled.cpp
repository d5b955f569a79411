#include "planner/describe/text/not_modelled.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace zeroplan::describe {
namespace {

using enum Vocabulary;

// Words are those of Megatron-LM's and DeepSpeed's arguments, torchtitan's and NeMo's configurations,
// transformers' TrainingArguments and PEFT.
constexpr NotModelled kWords[] = {
    {plan_key,
     "pp pp_size pipeline pipeline_parallel pipeline_parallel_size pipeline_model_parallel_size "
     "pipeline_parallelism pipeline_stages num_stages pp_degree",
     "pipeline parallelism", "--tp inside a node and --zero divide a model over devices"},
    {plan_key,
     "vp vpp virtual_pipeline virtual_pipeline_parallel virtual_pipeline_model_parallel_size "
     "num_layers_per_virtual_pipeline_stage interleaved",
     "pipeline parallelism", "--tp inside a node and --zero divide a model over devices"},
    {plan_key,
     "ep ep_size expert_parallel expert_parallel_size expert_model_parallel_size moe_ep expert_parallelism "
     "expert_tensor_parallel_size etp moe_expert_parallel",
     "expert parallelism", "--tp divides every expert, and --zero 3 all of them over the ranks"},
    {plan_key,
     "cp cp_size context_parallel context_parallel_size context_parallelism ring_attention "
     "sequence_sharding",
     "context parallelism",
     "--tp, --recompute full and --partition-activations make room for long sequences"},
    {plan_key,
     "sp sp_size sequence_parallel sequence_parallel_size sequence_parallelism ulysses "
     "ulysses_sequence_parallel_size",
     "sequence parallelism", "--partition-activations divides checkpoints over the tensor-parallel ranks"},
    {plan_key,
     "lora lora_r lora_rank lora_alpha lora_target_modules peft dora adapter adapters use_peft prefix_tuning",
     "training of adapters (LoRA)", "every parameter of a plan is trained"},
    {plan_key, "qlora load_in_4bit load_in_8bit bnb_4bit_quant_type quantize quantization nf4 use_qlora",
     "training over quantised weights (QLoRA)", "every parameter of a plan is trained, in --dtype"},
    {plan_key, "freeze frozen freeze_layers freeze_embeddings train_layers trainable_layers",
     "training of a part of the parameters", "every parameter of a plan is trained"},
    {plan_key, "fp8 fp8_hybrid fp8_format fp8_recipe float8 transformer_engine mxfp8 te_fp8",
     "computing in fp8", "--dtype bf16"},
    {plan_key, "fp4 nvfp4 mxfp4 int8 int4", "computing in 4 or 8 bits", "--dtype bf16"},
    {plan_key,
     "hsdp hybrid_shard hybrid_sharding replicate dp_replicate data_parallel_replicate_degree mics "
     "mics_shard_size zero_hpz_partition_size zero_plus_plus zeropp zero++",
     "hybrid sharding under this name",
     "--shard N divides over N of the data-parallel ranks (HSDP, MiCS), --secondary-shard N is hpZ of "
     "ZeRO++"},
    {plan_key, "zero_quantized_weights zero_quantized_gradients qwz qgz onebit powersgd gradient_compression",
     "compressed collectives", "collectives move what --dtype and --engine say"},
    {plan_key, "nvme offload_nvme zero_infinity offload_to_nvme", "offload to NVMe",
     "--offload all keeps states and parameters in host memory"},
    {plan_key, "dpo ppo grpo rlhf orpo kto reward_model ref_model reference_model",
     "training with a second model beside (DPO, PPO, GRPO)", "a plan trains one model by next tokens"},
    {plan_key, "compile torch_compile cuda_graph cuda_graphs", "compiled kernels",
     "an --engine has the kernels it has without a compiler"},
    {plan_key, "tp_comm_overlap async_tp async_tensor_parallel ub_tp_comm_overlap",
     "overlap of tensor-parallel traffic", "--overlap is about data-parallel traffic"},
    {plan_key,
     "fused_linear_cross_entropy chunked_loss chunked_cross_entropy liger use_liger_kernel cut_cross_entropy",
     "a loss in chunks", "whole logits are counted"},
    {plan_key, "ema use_ema", "averaged weights (EMA)", ""},

    {plan_key,
     "gradient_checkpointing activation_checkpointing checkpoint_activations recompute_activations ac", "",
     "--recompute full or selective", true},
    {plan_key,
     "batch batch_size mbs micro_batch_size per_device_train_batch_size device_batch_size local_batch_size",
     "", "--micro-batch", true},
    {plan_key, "gbs global_batch_size train_batch_size", "", "--global-batch", true},
    {plan_key, "gas accumulation gradient_accumulation gradient_accumulation_steps accumulate_grad_batches",
     "", "--grad-accum", true},
    {plan_key,
     "seq_len seq_length sequence_length max_seq_len max_length max_seq_length context_length block_size "
     "sequence",
     "", "--seq", true},
    {plan_key, "precision mixed_precision torch_dtype compute_dtype", "", "--dtype", true},
    {plan_key, "fp16 bf16 fp32", "", "--dtype fp16, bf16 or fp32", true},
    {plan_key, "tensor_parallel tensor_parallel_size tensor_model_parallel_size model_parallel tp_size", "",
     "--tp", true},
    {plan_key, "data_parallel data_parallel_size dp_size dp_shard data_parallel_shard_degree", "", "--dp",
     true},
    {plan_key, "world_size num_gpus ngpus devices num_devices n_gpus num_processes", "", "--gpus", true},
    {plan_key, "num_nodes nnodes num_machines", "", "--nodes", true},
    {plan_key, "flash flash_attention flash_attn use_flash_attn attn_implementation sdpa", "",
     "--attention flash or materialized", true},
    {plan_key, "cpu_offload optimizer_offload offload_optimizer", "", "--offload optimizer", true},
    {plan_key, "offload_param offload_params", "", "--offload all", true},
    {plan_key, "hardware machine cluster", "", "--hw", true},

    {optimizer, "muon moonlight", "the Muon optimizer",
     "nearest: sgd-momentum, as its matrices keep a momentum alone"},
    {optimizer, "lamb fused_lamb onebit_lamb fusedlamb", "the LAMB optimizer",
     "nearest: adam, which keeps the same states"},
    {optimizer, "lars", "the LARS optimizer", "nearest: sgd-momentum, which keeps the same state"},
    {optimizer, "onebit_adam zero_one_adam 1bit_adam", "Adam with compressed collectives", "nearest: adam"},
    {optimizer, "adamax nadam radam adabelief adan adabound yogi ademamix came prodigy adopt",
     "this optimizer", "nearest: adam"},
    {optimizer, "adagrad rmsprop rprop", "this optimizer",
     "nearest: sgd-momentum, which also keeps one value for each parameter"},
    {optimizer, "sophia sophiag", "the Sophia optimizer", "nearest: adam, which also keeps two states"},
    {optimizer, "shampoo distributed_shampoo soap kfac", "an optimizer with matrices as preconditioners", ""},
    {optimizer, "galore galore_adamw apollo apollo_adamw fira q_galore", "an optimizer in a subspace", ""},
    {optimizer, "lomo adalomo badam lisa", "an optimizer that steps during backward", ""},
    {optimizer, "adam_mini schedule_free schedulefree_adamw schedule_free_adamw", "this variant of Adam",
     "nearest: adam"},
    {optimizer, "paged_adamw paged_adamw_8bit paged_adamw_32bit paged_lion", "a paged optimizer",
     "nearest: adam8bit or adam, with --offload optimizer"},
    {optimizer, "adam4bit adamw4bit adamw_4bit adamw_torch_4bit adam_fp8 adamwfp8 adamw_fp8",
     "states of 4 or 8-bit floats", "nearest: adam8bit"},
    {optimizer, "lion8bit lion_8bit sgd8bit adagrad8bit", "this optimizer in 8 bits",
     "nearest: adam8bit, or lion with an fp32 state"},

    {engine, "fsdp1 fully_sharded_data_parallel torch_fsdp1", "FSDP1 (flat parameters)", "nearest: fsdp2"},
    {engine, "deepspeed_chat deepspeedchat openrlhf verl trl", "a trainer of several models",
     "nearest: deepspeed, for one of its models"},
    {engine, "colossalai colossal_ai gemini", "Colossal-AI", "nearest: deepspeed"},
    {engine, "nemo nemo_framework megatron_bridge megatron_core mcore modelopt",
     "this framework on Megatron Core", "nearest: megatron, which has stages 0 and 1"},
    {engine, "gpt_neox gptneox", "Megatron with DeepSpeed", "nearest: megatron-deepspeed"},
    {engine,
     "axolotl llama_factory llamafactory ms_swift swift xtuner accelerate transformers hf huggingface "
     "trainer",
     "this trainer, which runs on other engines,", "nearest: the engine it is set to, deepspeed or fsdp2"},
    {engine, "unsloth torchtune", "this trainer's kernels", "nearest: pytorch or fsdp2"},
    {engine, "torchtitan titan nanotron picotron veomni", "this trainer's engine", "nearest: fsdp2"},
    {engine, "lightning pytorch_lightning fabric fairscale", "this trainer's engine",
     "nearest: fsdp2, or pytorch without sharding"},
    {engine, "maxtext jax xla t5x paxml levanter easylm tpu", "JAX", "nearest: fsdp2, on GPUs"},
    {engine, "bmtrain alpa flexflow oneflow mindspore paddle paddlenlp", "this framework",
     "nearest: deepspeed or fsdp2"},
    {engine, "llmc llm_c llmq nanogpt", "this trainer's engine", "nearest: pytorch, or native"},
    {engine, "horovod smp sagemaker smddp bytescheduler", "this framework", "nearest: pytorch"},

    {dtype, "fp8 float8 float8_e4m3fn mxfp8 e4m3 e5m2", "computing in fp8", "--dtype bf16"},
    {dtype, "int8 int4 fp4 nf4 nvfp4 mxfp4 4bit 8bit", "computing in 4 or 8 bits", "--dtype bf16"},
    {dtype, "tf32 tensorfloat32", "computing in tf32", "--dtype fp32 keeps the same bytes"},
    {dtype, "fp64 float64 double", "computing in fp64", "--dtype fp32"},
    {dtype, "half", "", "fp16", true},
    {offload, "nvme ssd disk", "offload to NVMe", "--offload all keeps states and parameters in host memory"},
    {offload, "cpu", "", "optimizer, or all with the parameters", true},
    {offload, "param params parameters", "offload of parameters without the optimizer",
     "--offload all has both"},
    {attention, "ring context_parallel ulysses", "attention over several devices", "--attention flash"},
    {attention, "eager naive math", "", "materialized", true},
    {attention, "sdpa flash2 flash3 flash_attention flash_attention_2 flash_attention_3 xformers te fa2 fa3",
     "", "flash", true},
};

std::string comparable(std::string_view word) {
  std::string result;
  for (const char c : word) {
    if (c != '-' && c != '_') result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

bool has_word(std::string_view words, const std::string& wanted) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (comparable(words.substr(0, end)) == wanted) return true;
    words.remove_prefix(std::min(words.size(), end + 1));
  }
  return false;
}

}  // namespace

std::span<const NotModelled> not_modelled_words() { return kWords; }

std::string not_modelled(Vocabulary vocabulary, std::string_view word) {
  const std::string wanted = comparable(word);
  for (const NotModelled& entry : kWords) {
    if (entry.vocabulary != vocabulary || !has_word(entry.words, wanted)) continue;
    if (entry.is_modelled) return fmt::format("this is {} here", entry.instead);
    return fmt::format("{} is not modelled yet{}{}", entry.what, entry.instead.empty() ? "" : "; ",
                       entry.instead);
  }
  return "";
}

}  // namespace zeroplan::describe
