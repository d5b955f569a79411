#include "planner/describe/plan/accelerate_keys.hpp"

#include <array>

namespace zeroplan::describe {
namespace {

constexpr auto kUsed = KeyClass::used;
constexpr auto kHarmless = KeyClass::harmless;
constexpr auto kNotModelled = KeyClass::not_modelled;
constexpr auto kRefused = KeyClass::refused;

constexpr KnownKey kTop[] = {
    {"distributed_type", kUsed},
    {"num_processes", kUsed},
    {"num_machines", kUsed},
    {"mixed_precision", kUsed},
    {"fsdp_config", kUsed},
    {"deepspeed_config", kUsed},
    {"parallelism_config", kUsed},
    {"gradient_accumulation_steps", kUsed},
    {"debug", kHarmless},
    {"machine_rank", kHarmless},
    {"gpu_ids", kHarmless},
    {"main_process_ip", kHarmless},
    {"main_process_port", kHarmless},
    {"main_training_function", kHarmless},
    {"rdzv_backend", kHarmless},
    {"same_network", kHarmless},
    {"enable_cpu_affinity", kHarmless},
    {"mpirun_config", kHarmless},
    {"command_file", kHarmless},
    {"commands", kHarmless},
    {"tpu_env", kHarmless},
    {"tpu_name", kHarmless},
    {"tpu_use_cluster", kHarmless},
    {"tpu_use_sudo", kHarmless},
    {"tpu_vm", kHarmless},
    {"tpu_zone", kHarmless},
    {"dynamo_backend", kNotModelled, "planned with the engine's own kernels"},
    {"dynamo_config", kNotModelled, "planned with the engine's own kernels"},
    {"fp8_config", kNotModelled, "planned in the type of mixed_precision"},
    {"ipex_config", kNotModelled, "planned with the engine's own kernels"},
    {"compute_environment", kNotModelled, "planned as on machines of one's own", "LOCAL_MACHINE"},
    {"downcast_bf16", kNotModelled, "it is for TPUs, which are not modelled"},
    {"use_cpu", kRefused, "the machine that --hw names trains on its devices; expected it absent or false"},
    {"megatron_lm_config", kRefused,
     "its degrees are not read; say --tp, --engine megatron --zero 1, and no -f"},
};

constexpr std::string_view kUnits = "each layer is planned as a unit that is gathered and reduced by itself";

constexpr KnownKey kFsdp[] = {
    {"fsdp_version", kUsed},
    {"fsdp_sharding_strategy", kUsed},
    {"fsdp_reshard_after_forward", kUsed},
    {"fsdp_offload_params", kUsed},
    {"fsdp_activation_checkpointing", kUsed},
    {"fsdp_auto_wrap_policy", kUsed},
    {"fsdp_min_num_params", kNotModelled, kUnits},
    {"fsdp_transformer_layer_cls_to_wrap", kHarmless},
    {"fsdp_activation_checkpointing_offload", kNotModelled, "set offload_activations"},
    {"fsdp_backward_prefetch", kNotModelled, "the next layer is planned to be gathered beside backward",
     "BACKWARD_PRE 1"},
    {"fsdp_backward_prefetch_policy", kNotModelled,
     "the next layer is planned to be gathered beside backward", "BACKWARD_PRE 1"},
    {"fsdp_forward_prefetch", kHarmless},
    {"fsdp_limit_all_gathers", kNotModelled, "one layer is planned to be gathered ahead", "true"},
    {"fsdp_cpu_ram_efficient_loading", kNotModelled, "the model is planned to be loaded once for a node",
     "true"},
    {"fsdp_state_dict_type", kHarmless},
    {"fsdp_sync_module_states", kHarmless},
    {"fsdp_use_orig_params", kHarmless},
};

constexpr KnownKey kDeepSpeed[] = {
    {"zero_stage", kUsed},
    {"offload_optimizer_device", kUsed},
    {"offload_param_device", kUsed},
    {"gradient_accumulation_steps", kUsed},
    {"deepspeed_config_file", kRefused, "the settings stand in that file: give it with -f, and --gpus"},
    {"deepspeed_moe_layer_cls_names", kNotModelled, "planned with a gather for each layer"},
    {"gradient_clipping", kHarmless},
    {"offload_optimizer_nvme_path", kHarmless},
    {"offload_param_nvme_path", kHarmless},
    {"zero3_init_flag", kHarmless},
    {"zero3_save_16bit_model", kHarmless},
    {"deepspeed_hostfile", kHarmless},
    {"deepspeed_multinode_launcher", kHarmless},
    {"deepspeed_inclusion_filter", kHarmless},
    {"deepspeed_exclusion_filter", kHarmless},
};

constexpr std::string_view kTokens =
    "it divides the tokens of a sequence over GPUs; expected it absent, or 1";

constexpr KnownKey kParallelism[] = {
    {"parallelism_config_tp_size", kUsed},
    {"parallelism_config_dp_shard_size", kUsed},
    {"parallelism_config_dp_replicate_size", kRefused,
     "states would be divided over a part of the ranks only; plan one replica with --gpus", "1"},
    {"parallelism_config_cp_size", kRefused, kTokens, "1"},
    {"parallelism_config_sp_size", kRefused, kTokens, "1"},
    {"parallelism_config_cp_backend", kHarmless},
    {"parallelism_config_cp_comm_strategy", kHarmless},
    {"parallelism_config_sp_attn_implementation", kHarmless},
    {"parallelism_config_sp_backend", kHarmless},
    {"parallelism_config_sp_seq_length", kHarmless},
    {"parallelism_config_sp_seq_length_is_variable", kHarmless},
};

constexpr std::array kTables = {
    KeyTable{"", kTop},
    KeyTable{"fsdp_config", kFsdp},
    KeyTable{"deepspeed_config", kDeepSpeed},
    KeyTable{"parallelism_config", kParallelism},
};

}  // namespace

std::span<const KeyTable> accelerate_tables() { return kTables; }

std::span<const KnownKey> accelerate_keys(std::string_view section) { return keys_of(kTables, section); }

}  // namespace zeroplan::describe
