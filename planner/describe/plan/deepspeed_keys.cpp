#include "planner/describe/plan/deepspeed_keys.hpp"

#include <array>

namespace zeroplan::describe {
namespace {

constexpr auto kUsed = KeyClass::used;
constexpr auto kHarmless = KeyClass::harmless;
constexpr auto kNotModelled = KeyClass::not_modelled;
constexpr auto kRefused = KeyClass::refused;

constexpr std::string_view kWholeTokens = "every step is planned with whole sequences of the plan's length";
constexpr std::string_view kSameModel = "it changes the model or what of it is trained";
constexpr std::string_view kSixteenBits =
    "planned with fp32 master weights and fp32 optimizer states, which take more memory";
constexpr std::string_view kDegrees =
    "it changes how many sequences and tokens a GPU holds; expected it absent";

constexpr KnownKey kTop[] = {
    {"train_batch_size", kUsed},
    {"train_micro_batch_size_per_gpu", kUsed},
    {"gradient_accumulation_steps", kUsed},
    {"bf16", kUsed},
    {"bfloat16", kUsed},
    {"fp16", kUsed},
    {"optimizer", kUsed},
    {"zero_optimization", kUsed},
    {"activation_checkpointing", kUsed},
    {"tensor_parallel", kUsed},
    {"torch_autocast", kUsed},
    {"data_types", kUsed},
    {"pipeline", kUsed},
    {"scheduler", kHarmless},
    {"gradient_clipping", kHarmless},
    {"prescale_gradients", kHarmless},
    {"gradient_predivide_factor", kHarmless},
    {"gradient_allreduce_op", kHarmless},
    {"managed_gradient_accumulation", kHarmless},
    {"steps_per_print", kHarmless},
    {"wall_clock_breakdown", kHarmless},
    {"memory_breakdown", kHarmless},
    {"dump_state", kHarmless},
    {"log_level", kHarmless},
    {"disable_python_gc", kHarmless},
    {"zero_allow_untested_optimizer", kHarmless},
    {"zero_force_ds_cpu_optimizer", kHarmless},
    {"tensorboard", kHarmless},
    {"wandb", kHarmless},
    {"csv_monitor", kHarmless},
    {"comet", kHarmless},
    {"comms_logger", kHarmless},
    {"flops_profiler", kHarmless},
    {"timers", kHarmless},
    {"aio", kHarmless},
    {"checkpoint", kHarmless},
    {"nebula", kHarmless},
    {"datastates_ckpt", kHarmless},
    {"use_node_local_storage", kHarmless},
    {"dataloader_drop_last", kHarmless},
    {"use_data_before_expert_parallelism", kHarmless},
    {"seq_parallel_communication_data_type", kHarmless},
    {"vocabulary_size", kHarmless},
    {"disable_allgather", kNotModelled, "planned with all-gathers of the partitions"},
    {"communication_data_type", kNotModelled, "traffic is counted in the type of the plan's gradients"},
    {"sparse_gradients", kNotModelled, "gradients of the embedding are counted whole"},
    {"amp", kNotModelled, "planned in the type of bf16 and fp16, without Apex's casts"},
    {"fp8", kNotModelled, "planned in the type of bf16 and fp16"},
    {"compile", kNotModelled, "planned with the engine's own kernels"},
    {"autotuning", kNotModelled, "its search replaces batch sizes and stage; planned with those of the file"},
    {"hybrid_engine", kNotModelled, "memory of generation is not counted"},
    {"curriculum_learning", kNotModelled, kWholeTokens},
    {"data_efficiency", kNotModelled, kWholeTokens},
    {"progressive_layer_drop", kNotModelled, "every layer is planned to run"},
    {"sparse_attention", kNotModelled, "planned with dense attention"},
    {"quantize_training", kNotModelled, "weights are counted in the plan's type"},
    {"weight_quantization", kNotModelled, "weights are counted in the plan's type"},
    {"eigenvalue", kNotModelled, "its work is not counted"},
    {"graph_harvesting", kNotModelled, "memory of captured graphs is not counted"},
    {"compression_training", kRefused, kSameModel},
    {"elasticity", kRefused, "it replaces the batch sizes of the file; expected it absent"},
    {"lora", kRefused, "only adapters would be trained; expected it absent"},
    {"sequence_parallel", kRefused, kDegrees, "1 false"},
    {"sequence_parallel_size", kRefused, kDegrees, "1"},
    {"context_parallel", kRefused, kDegrees, "1 false"},
    {"context_parallel_size", kRefused, kDegrees, "1"},
    {"pipeline_parallel_size", kRefused, "layers would be divided over GPUs; expected it absent", "1"},
    {"expert_parallel", kRefused, "experts would be divided over data-parallel ranks; expected it absent"},
    {"expert_parallel_size", kRefused,
     "experts would be divided over data-parallel ranks; expected it absent", "1"},
};

constexpr KnownKey kZero[] = {
    {"stage", kUsed},
    {"offload_optimizer", kUsed},
    {"offload_param", kUsed},
    {"cpu_offload", kUsed},
    {"cpu_offload_param", kUsed},
    {"cpu_offload_params", kUsed},
    {"overlap_comm", kUsed},
    {"reduce_bucket_size", kUsed},
    {"zero_hpz_partition_size", kUsed},
    {"zero_quantized_weights", kUsed},
    {"zero_quantized_nontrainable_weights", kUsed},
    {"zero_quantized_gradients", kUsed},
    {"allgather_bucket_size", kNotModelled,
     "all-gathers are planned whole: the bytes are the same, not the calls", "5e8 2e8"},
    {"prefetch_bucket_size", kNotModelled, "planned with one layer gathered ahead", "5e7"},
    {"stage3_prefetch_bucket_size", kNotModelled, "planned with one layer gathered ahead", "5e7"},
    {"param_persistence_threshold", kNotModelled, "every parameter is planned as partitioned", "1e5"},
    {"stage3_param_persistence_threshold", kNotModelled, "every parameter is planned as partitioned", "1e5"},
    {"model_persistence_threshold", kNotModelled, "every parameter is planned as partitioned",
     "9223372036854775807"},
    {"stage3_model_persistence_threshold", kNotModelled, "every parameter is planned as partitioned",
     "9223372036854775807"},
    {"max_live_parameters", kNotModelled, "planned with two layers gathered at a time", "1e9"},
    {"stage3_max_live_parameters", kNotModelled, "planned with two layers gathered at a time", "1e9"},
    {"max_reuse_distance", kNotModelled, "every layer is released after its use", "1e9"},
    {"stage3_max_reuse_distance", kNotModelled, "every layer is released after its use", "1e9"},
    {"sub_group_size", kNotModelled, "the optimizer step is planned over the whole partition", "1e9"},
    {"module_granularity_threshold", kNotModelled, "planned with a gather for each layer"},
    {"stage3_module_granularity_threshold", kNotModelled, "planned with a gather for each layer"},
    {"leaf_module", kNotModelled, "planned with a gather for each layer"},
    {"contiguous_gradients", kNotModelled, "gradients are planned in one buffer", "true"},
    {"reduce_scatter", kNotModelled, "gradients are planned to be reduced and scattered", "true"},
    {"allgather_partitions", kNotModelled, "updated parameters are planned to be gathered", "true"},
    {"use_all_reduce_for_fetch_params", kNotModelled, "parameters are planned to be gathered"},
    {"stage3_use_all_reduce_for_fetch_params", kNotModelled, "parameters are planned to be gathered"},
    {"zenflow", kNotModelled, "planned with every gradient in every step"},
    {"save_muon_momentum_buffer_in_memory", kNotModelled, "not counted"},
    {"zeropp_loco_param", kNotModelled, "ZeRO++ is not modelled; planned without it"},
    {"mics_shard_size", kUsed},
    {"mics_hierarchical_params_gather", kHarmless},
    {"compute_grad_norm", kHarmless},
    {"allgather_sequential", kHarmless},
    {"stage3_allgather_sequential", kHarmless},
    {"round_robin_gradients", kHarmless},
    {"load_from_fp32_weights", kHarmless},
    {"elastic_checkpoint", kHarmless},
    {"ignore_unused_parameters", kHarmless},
    {"legacy_stage1", kHarmless},
    {"cpu_offload_use_pin_memory", kHarmless},
    {"gather_16bit_weights_on_model_save", kHarmless},
    {"stage3_gather_16bit_weights_on_model_save", kHarmless},
    {"gather_fp16_weights_on_model_save", kHarmless},
    {"stage3_gather_fp16_weights_on_model_save", kHarmless},
    {"use_multi_rank_bucket_allreduce", kHarmless},
    {"memory_efficient_linear", kHarmless},
    {"override_module_apply", kHarmless},
    {"pipeline_loading_checkpoint", kHarmless},
    {"log_trace_cache_warnings", kHarmless},
    {"enable_sanity_checks", kHarmless},
    {"parameter_alignment", kHarmless},
};

// Of nvme_path and the sizes of its buffers nothing is left where the device is the CPU; nvme itself is refused.
constexpr KnownKey kOffloadParameters[] = {
    {"device", kUsed},          {"nvme_path", kHarmless},  {"buffer_count", kHarmless},
    {"buffer_size", kHarmless}, {"max_in_cpu", kHarmless}, {"pin_memory", kHarmless},
};

constexpr KnownKey kOffloadOptimizer[] = {
    {"device", kUsed},
    {"nvme_path", kHarmless},
    {"buffer_count", kHarmless},
    {"pin_memory", kHarmless},
    {"pipeline_read", kHarmless},
    {"pipeline_write", kHarmless},
    {"pipeline", kHarmless},
    {"fast_init", kHarmless},
    {"cpuadam_cores_perc", kHarmless},
    {"ratio", kNotModelled, "every state is planned in host memory", "1"},
    {"super_offload", kNotModelled, "planned as plain offload"},
};

constexpr KnownKey kBf16[] = {
    {"enabled", kUsed},
    {"immediate_grad_update", kHarmless},
    {"check_grad_overflow", kHarmless},
    {"bf16_master_weights_and_grads", kNotModelled, kSixteenBits},
    {"bf16_master_weights_and_gradients", kNotModelled, kSixteenBits},
    {"bf16_optimizer_states", kNotModelled, kSixteenBits},
};

constexpr KnownKey kFp16[] = {
    {"enabled", kUsed},
    {"auto_cast", kHarmless},
    {"loss_scale", kHarmless},
    {"initial_scale_power", kHarmless},
    {"loss_scale_window", kHarmless},
    {"hysteresis", kHarmless},
    {"consecutive_hysteresis", kHarmless},
    {"min_loss_scale", kHarmless},
    {"fp16_master_weights_and_grads", kNotModelled, kSixteenBits},
    {"fp16_master_weights_and_gradients", kNotModelled, kSixteenBits},
    {"fp16_optimizer_states", kNotModelled, kSixteenBits},
    {"opt_level", kNotModelled, "planned in fp16 without Apex's casts"},
};

constexpr KnownKey kCheckpointing[] = {
    {"partition_activations", kUsed},
    {"cpu_checkpointing", kUsed},
    {"number_checkpoints", kNotModelled, "planned with one checkpoint per layer; set checkpoint_interval"},
    {"contiguous_memory_optimization", kNotModelled, "set contiguous_memory"},
    {"synchronize_checkpoint_boundary", kHarmless},
    {"profile", kHarmless},
};

constexpr KnownKey kTensorParallel[] = {
    {"autotp_size", kUsed},
    {"tp", kRefused, "the degree of training is autotp_size; expected tp absent", "1"},
    {"tensor_parallel", kRefused, "the degree of training is autotp_size; expected it absent", "1"},
    {"tp_size", kRefused, "the degree of training is autotp_size; expected it absent", "1"},
    {"tp_overlap_comm", kNotModelled, "the engine's own overlap is planned"},
    {"vocab_parallel_lm_head", kNotModelled,
     "embedding and head are planned divided over tensor-parallel ranks"},
    {"vocab_parallel_ce_backend", kNotModelled, "planned with the engine's loss", "torch"},
    {"dtype", kHarmless},
    {"tp_grain_size", kHarmless},
    {"injection_policy_tuple", kHarmless},
    {"partition_config", kNotModelled, "planned with Megatron's division of each layer"},
    {"preset_model", kHarmless},
    {"keep_module_on_host", kHarmless},
    {"replace_with_kernel_inject", kHarmless},
    {"kernel_inject", kHarmless},
};

constexpr KnownKey kAutocast[] = {
    {"enabled", kNotModelled, "states and activations are planned in the type of bf16 and fp16"},
    {"dtype", kHarmless},
    {"lower_precision_safe_modules", kHarmless},
};

constexpr KnownKey kDataTypes[] = {
    {"grad_accum_dtype", kNotModelled,
     "gradients accumulate in the type that the engine takes for the plan's"},
    {"param_dtype", kNotModelled, "parameters are planned in the type of bf16 and fp16"},
    {"buffer_dtype", kHarmless},
    {"keep_in_fp32_modules", kNotModelled, "every parameter is planned in the same type"},
};

// The number of stages is the model's own affair there (PipelineModule), so a file may hold these without one.
constexpr KnownKey kPipeline[] = {
    {"stages", kRefused, "layers would be divided over GPUs; expected it absent, or 1", "1"},
    {"partition", kHarmless},
    {"seed_layers", kHarmless},
    {"activation_checkpoint_interval", kNotModelled, "set recompute and checkpoint_interval"},
    {"pipe_partitioned", kHarmless},
    {"grad_partitioned", kHarmless},
    {"use_reentrant", kHarmless},
};

constexpr KnownKey kOptimizer[] = {
    {"type", kUsed},
    {"params", kUsed},
    {"legacy_fusion", kHarmless},
};

constexpr KnownKey kOptimizerParameters[] = {
    {"momentum", kUsed},
    {"lr", kHarmless},
    {"betas", kHarmless},
    {"eps", kHarmless},
    {"weight_decay", kHarmless},
    {"bias_correction", kHarmless},
    {"adam_w_mode", kHarmless},
    {"torch_adam", kHarmless},
    {"fused", kHarmless},
    {"foreach", kHarmless},
    {"fp32_optimizer_states", kNotModelled, kSixteenBits, "true"},
    {"nesterov", kHarmless},
    {"dampening", kHarmless},
    {"max_grad_norm", kHarmless},
    {"amsgrad", kNotModelled, "its third state is not counted"},
};

constexpr std::array kTables = {
    KeyTable{"", kTop},
    KeyTable{"zero_optimization", kZero},
    KeyTable{"zero_optimization.offload_param", kOffloadParameters},
    KeyTable{"zero_optimization.offload_optimizer", kOffloadOptimizer},
    KeyTable{"bf16", kBf16},
    KeyTable{"bfloat16", kBf16},
    KeyTable{"fp16", kFp16},
    KeyTable{"activation_checkpointing", kCheckpointing},
    KeyTable{"tensor_parallel", kTensorParallel},
    KeyTable{"torch_autocast", kAutocast},
    KeyTable{"data_types", kDataTypes},
    KeyTable{"pipeline", kPipeline},
    KeyTable{"optimizer", kOptimizer},
    KeyTable{"optimizer.params", kOptimizerParameters},
};

}  // namespace

std::span<const KeyTable> deepspeed_tables() { return kTables; }

std::span<const KnownKey> deepspeed_keys(std::string_view section) { return keys_of(kTables, section); }

}  // namespace zeroplan::describe
