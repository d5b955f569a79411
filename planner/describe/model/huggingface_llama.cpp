#include "planner/describe/model/check_model.hpp"
#include "planner/describe/model/huggingface_families.hpp"

namespace zeroplan::describe {

namespace {

struct Defaults {
  std::string_view type;
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: hidden / heads
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  double norm_epsilon = 1e-6;
  std::int64_t window = 0;  // sliding, in all layers; 0: none
};

// What the transformers library takes for keys that a file of this type leaves out.
constexpr Defaults kDefaults[] = {
    {"llama"},
    {"mistral", 8, 0, QueryKeyNorm::none, 1e-6, 4096},
    {"qwen2", 32},
    {"qwen3", 32, 128, QueryKeyNorm::head},
    {"phi3", 0, 0, QueryKeyNorm::none, 1e-5},
    {"olmo2", 0, 0, QueryKeyNorm::full, 1e-5},
};

constexpr auto kSliding = program::AttentionWindow::Kind::sliding;

Bias llama_biases(MapReader& config, bool attention) {
  const bool mlp = flag_or(config, "mlp_bias", false);
  if (mlp && !attention) {
    config.problem(
        "mlp_bias",
        "found true, expected attention_bias true beside it: biases on the MLP only are not modelled");
  }
  if (mlp) return Bias::all;
  return attention ? Bias::qkvo : Bias::none;
}

}  // namespace

void read_llama(MapReader& config, std::string_view type, Model& model) {
  Defaults defaults;
  for (const Defaults& candidate : kDefaults) {
    if (candidate.type == type) defaults = candidate;
  }
  read_sizes(config, model);
  read_kv_heads(config, model, defaults.kv_heads);
  model.ffn = required_size(config, {"intermediate_size"}, kMaxFfn);
  read_head_dim(config, model);
  if (defaults.head_dim > 0 && !config.has("head_dim")) model.head_dim = defaults.head_dim;
  model.gated_ffn = true;
  read_activation(config, "hidden_act", "silu", model);
  model.position = Position::rotary;
  model.norm = Norm::rms_norm;
  model.query_key_norm = defaults.query_key_norm;
  if (type == "olmo2") model.norm_placement = NormPlacement::branch;
  read_rotary(config, model);
  read_norm_epsilon(config, model, "rms_norm_eps", defaults.norm_epsilon);
  if (type == "mistral" || type == "phi3") {
    read_window(config, model, kSliding, "sliding_window", defaults.window, 0);
  } else if (type == "qwen2" || type == "qwen3") {
    read_late_window(config, model, 28);
  }
  // Qwen2 has its biases on query, key and value without a key that says so.
  model.biases = type == "qwen2" ? Bias::qkv : llama_biases(config, flag_or(config, "attention_bias", false));
  read_tied(config, model, false);
  if (type.starts_with("qwen")) ignore_unused_windows(config);
}

void read_gemma(MapReader& config, std::string_view type, Model& model) {
  model.hidden = required_size(config, {"hidden_size"}, kMaxHidden);
  model.layers = required_size(config, {"num_hidden_layers"}, kMaxLayers);
  model.ffn = required_size(config, {"intermediate_size"}, kMaxFfn);
  // Files of multimodal Gemma 3 state only what differs from these.
  const bool third = type == "gemma3_text";
  const bool first = type == "gemma";
  model.vocabulary = third ? size_or(config, "vocab_size", 262208, kMaxVocabulary)
                           : required_size(config, {"vocab_size"}, kMaxVocabulary);
  model.heads = third ? size_or(config, "num_attention_heads", 8, kMaxHeads)
                      : required_size(config, {"num_attention_heads"}, kMaxHeads);
  read_kv_heads(config, model, first ? 16 : 4);
  model.head_dim = size_or(config, "head_dim", 256, kMaxHeadDim);
  model.max_sequence = size_or(config, "max_position_embeddings", third ? 131072 : 8192, kMaxSequence);
  model.gated_ffn = true;
  read_activation(config, "hidden_activation", "gelu_pytorch_tanh", model);
  model.position = Position::rotary;
  model.norm = Norm::rms_norm;
  model.norms_per_layer = first ? 2 : 4;
  if (third) model.query_key_norm = QueryKeyNorm::head;
  model.norm_weight_offset = true;
  model.scaled_embeddings = true;
  read_norm_epsilon(config, model, "rms_norm_eps", 1e-6);
  read_rotary(config, model, third ? 1e6 : 1e4);
  if (!first) {
    const std::int64_t every = third ? size_or(config, "sliding_window_pattern", 6, kMaxLayers) : 2;
    read_window(config, model, kSliding, "sliding_window", 4096, every);
    read_attention_scale_dim(config, "query_pre_attn_scalar", 256, model);
    read_soft_cap(config, "attn_logit_softcapping", third ? 0 : 50, model.attention_soft_cap);
    read_soft_cap(config, "final_logit_softcapping", third ? 0 : 30, model.logits_soft_cap);
  }
  if (third) read_window_rotary(config, model, "rope_local_base_freq", 1e4);
  model.biases = flag_or(config, "attention_bias", false) ? Bias::qkvo : Bias::none;
  read_tied(config, model, true);
}

}  // namespace zeroplan::describe
