#include <set>
#include <stdexcept>

#include "planner/describe/model/check_model.hpp"
#include "planner/describe/model/huggingface_families.hpp"
#include "planner/describe/text/quantity.hpp"

namespace zeroplan::describe {

namespace {

using Per = ExtraParameters::Per;

void use_llama_block(MapReader& config, Model& model) {
  model.gated_ffn = true;
  read_activation(config, "hidden_act", "silu", model);
  model.position = Position::rotary;
  model.norm = Norm::rms_norm;
  model.biases = Bias::none;
  read_tied(config, model, false);
}

using Window = program::AttentionWindow::Kind;

// Routed experts in `layers` of the layers; the width of a dense MLP is kept only where there is one.
void use_experts(Model& model, const MixtureOfExperts& experts) {
  model.experts = experts;
  if (experts.layers == model.layers) model.ffn = 0;
  if (experts.layers == 0) model.experts.reset();
}

// Zero-based layer numbers in a list such as mlp_only_layers.
std::set<std::int64_t> layer_numbers(MapReader& config, std::string_view key, std::int64_t layers) {
  std::set<std::int64_t> numbers;
  const Value* list = config.list(key);
  if (list == nullptr) return numbers;
  for (const Value& item : list->items) {
    try {
      if (layers < 1 || item.kind != Value::Kind::scalar)
        throw std::invalid_argument("expected layer numbers");
      numbers.insert(parse_integer(item.text, 0, layers - 1));
    } catch (const std::invalid_argument& error) {
      config.problem(key, error.what());
      break;
    }
  }
  return numbers;
}

// DeepSeek's keys, which GLM shares: dense layers first, then experts with some shared ones of the same
// width.
MixtureOfExperts read_routed_experts(MapReader& config, const Model& model, std::int64_t default_dense,
                                     std::int64_t default_shared) {
  MixtureOfExperts experts;
  experts.experts =
      required_size(config, {"n_routed_experts", "num_experts", "num_local_experts"}, kMaxExperts);
  experts.top_k = required_size(config, {"num_experts_per_tok"}, kMaxExperts);
  experts.expert_ffn = required_size(config, {"moe_intermediate_size"}, kMaxFfn);
  const std::int64_t shared =
      is_null(config, "n_shared_experts")
          ? 0
          : config.integer("n_shared_experts", 0, kMaxExperts).value_or(default_shared);
  experts.shared_ffn = shared * experts.expert_ffn;
  if (experts.shared_ffn > kMaxFfn) config.problem("n_shared_experts", "their joint width is above 4194304");
  const std::int64_t first = config.integer("first_k_dense_replace", 0, kMaxLayers).value_or(default_dense);
  const std::int64_t frequency = size_or(config, "moe_layer_freq", 1, kMaxLayers);
  for (std::int64_t layer = first; layer < model.layers && frequency > 0; ++layer) {
    if (layer % frequency == 0) ++experts.layers;
  }
  return experts;
}

void note_prediction_layers(MapReader& config, Model& model) {
  const std::int64_t layers = config.integer("num_nextn_predict_layers", 0, kMaxLayers).value_or(0);
  if (layers > 0)
    model.notes.emplace_back("the multi-token-prediction layer (num_nextn_predict_layers) is left out");
}

void add_score_correction(Model& model) {
  if (model.experts && model.experts->experts > 0) {
    add_extra(model, "router.score_correction", Per::expert_layer, model.experts->experts);
  }
}

}  // namespace

void read_mixtral(MapReader& config, std::string_view, Model& model) {
  read_sizes(config, model);
  read_kv_heads(config, model, 8);
  read_head_dim(config, model);
  use_llama_block(config, model);
  MixtureOfExperts experts;
  experts.experts = size_or(config, {"num_local_experts", "num_experts"}, 8, kMaxExperts);
  experts.top_k = size_or(config, "num_experts_per_tok", 2, kMaxExperts);
  experts.expert_ffn = required_size(config, {"intermediate_size"}, kMaxFfn);
  experts.layers = model.layers;
  use_experts(model, experts);
  read_rotary(config, model, 1e6);
  read_norm_epsilon(config, model, "rms_norm_eps", 1e-5);
  read_window(config, model, Window::sliding, "sliding_window", 0, 0);
}

void read_qwen_experts(MapReader& config, std::string_view type, Model& model) {
  const bool second = type == "qwen2_moe";
  read_sizes(config, model);
  read_kv_heads(config, model, second ? 16 : 4);
  read_head_dim(config, model);
  use_llama_block(config, model);
  if (second) {
    if (flag_or(config, "qkv_bias", true)) model.biases = Bias::qkv;
  } else {
    model.query_key_norm = QueryKeyNorm::head;
    if (flag_or(config, "attention_bias", false)) model.biases = Bias::qkvo;
  }
  model.ffn = required_size(config, {"intermediate_size"}, kMaxFfn);
  read_rotary(config, model);
  read_norm_epsilon(config, model, "rms_norm_eps", 1e-6);
  read_late_window(config, model, second ? 28 : 0);

  MixtureOfExperts experts;
  experts.experts = required_size(config, {"num_experts"}, kMaxExperts);
  experts.top_k = required_size(config, {"num_experts_per_tok"}, kMaxExperts);
  experts.expert_ffn = required_size(config, {"moe_intermediate_size"}, kMaxFfn);
  ignore_unused_windows(config);
  if (second) {
    config.missing("shared_expert_intermediate_size", "a whole number, 0 where there is no shared expert");
    experts.shared_ffn = config.integer("shared_expert_intermediate_size", 0, kMaxFfn).value_or(0);
  }
  const std::int64_t step = size_or(config, "decoder_sparse_step", 1, kMaxLayers);
  const std::set<std::int64_t> dense = layer_numbers(config, "mlp_only_layers", model.layers);
  for (std::int64_t layer = 0; layer < model.layers && step > 0; ++layer) {
    if ((layer + 1) % step == 0 && !dense.contains(layer)) ++experts.layers;
  }
  use_experts(model, experts);
  if (experts.shared_ffn > 0 && model.experts && model.hidden > 0) {
    add_extra(model, "shared_expert.output_gate", Per::expert_layer, model.hidden);
  }
}

void read_deepseek(MapReader& config, std::string_view type, Model& model) {
  const bool second = type == "deepseek_v2";
  read_sizes(config, model);
  read_kv_heads(config, model, 0);
  use_llama_block(config, model);
  if (flag_or(config, "attention_bias", false)) {
    config.problem("attention_bias",
                   "found true, expected false: biases of latent attention are not modelled");
  }
  read_rotary(config, model);
  read_norm_epsilon(config, model, "rms_norm_eps", 1e-6);
  LatentAttention latent;
  latent.q_lora = is_null(config, "q_lora_rank") ? 0 : size_or(config, "q_lora_rank", 1536, kMaxHidden);
  latent.kv_lora = size_or(config, "kv_lora_rank", 512, kMaxHidden);
  latent.qk_nope_dim = size_or(config, "qk_nope_head_dim", 128, kMaxHeadDim);
  latent.qk_rope_dim = size_or(config, "qk_rope_head_dim", 64, kMaxHeadDim);
  latent.v_dim = size_or(config, "v_head_dim", 128, kMaxHeadDim);
  model.latent = latent;
  model.head_dim = latent.qk_nope_dim + latent.qk_rope_dim;

  const MixtureOfExperts experts = read_routed_experts(config, model, second ? 0 : 3, second ? 2 : 1);
  if (experts.layers < model.layers) model.ffn = required_size(config, {"intermediate_size"}, kMaxFfn);
  use_experts(model, experts);
  if (!second) add_score_correction(model);
  note_prediction_layers(config, model);
}

void read_glm4_experts(MapReader& config, std::string_view, Model& model) {
  read_sizes(config, model);
  read_kv_heads(config, model, 8);
  read_head_dim(config, model);
  use_llama_block(config, model);
  if (flag_or(config, "attention_bias", false)) model.biases = Bias::qkv;
  read_rotary(config, model, 10000, 0.5);
  read_norm_epsilon(config, model, "rms_norm_eps", 1e-5);
  if (flag_or(config, "use_qk_norm", false)) model.query_key_norm = QueryKeyNorm::head;
  const MixtureOfExperts experts = read_routed_experts(config, model, 1, 1);
  if (experts.layers < model.layers) model.ffn = required_size(config, {"intermediate_size"}, kMaxFfn);
  use_experts(model, experts);
  add_score_correction(model);
  note_prediction_layers(config, model);
}

void read_gpt_oss(MapReader& config, std::string_view, Model& model) {
  read_sizes(config, model);
  read_kv_heads(config, model, 8);
  model.head_dim = size_or(config, "head_dim", 64, kMaxHeadDim);
  use_llama_block(config, model);
  if (flag_or(config, "attention_bias", true)) model.biases = Bias::qkvo;
  read_rotary(config, model, 150000);
  if (!config.has("rope_scaling") && !config.has("rope_parameters")) model.rotary_scaling = "yarn";
  read_norm_epsilon(config, model, "rms_norm_eps", 1e-5);
  read_window(config, model, Window::sliding, "sliding_window", 128, 2);
  MixtureOfExperts experts;
  experts.experts = required_size(config, {"num_local_experts", "num_experts"}, kMaxExperts);
  experts.top_k = required_size(config, {"num_experts_per_tok", "experts_per_token"}, kMaxExperts);
  experts.expert_ffn = required_size(config, {"intermediate_size"}, kMaxFfn);
  experts.layers = model.layers;
  experts.biases = true;
  use_experts(model, experts);
  if (model.heads > 0) add_extra(model, "attention.sink", Per::layer, model.heads);
}

void read_llama4(MapReader& config, std::string_view, Model& model) {
  read_sizes(config, model);
  read_kv_heads(config, model, 8);
  read_head_dim(config, model);
  if (!config.has("head_dim") && !is_null(config, "head_dim")) model.head_dim = 128;
  use_llama_block(config, model);
  if (flag_or(config, "attention_bias", false)) model.biases = Bias::qkvo;
  read_rotary(config, model, 500000);
  read_norm_epsilon(config, model, "rms_norm_eps", 1e-5);
  read_window(config, model, Window::chunked, "attention_chunk_size", 8192,
              size_or(config, "no_rope_layer_interval", 4, kMaxLayers));
  read_layers_without_rotary(config, model);
  model.rotary_in_windows_only = model.window.kind == Window::chunked;
  MixtureOfExperts experts;
  experts.experts = required_size(config, {"num_local_experts"}, kMaxExperts);
  experts.top_k = size_or(config, "num_experts_per_tok", 1, kMaxExperts);
  experts.expert_ffn = required_size(config, {"intermediate_size"}, kMaxFfn);
  experts.shared_ffn = experts.expert_ffn;
  const std::int64_t step = size_or(config, "interleave_moe_layer_step", 1, kMaxLayers);
  const std::set<std::int64_t> listed = layer_numbers(config, "moe_layers", model.layers);
  if (config.has("moe_layers")) {
    experts.layers = static_cast<std::int64_t>(listed.size());
  } else if (step > 0) {
    experts.layers = model.layers / step;
  }
  if (experts.layers < model.layers) model.ffn = required_size(config, {"intermediate_size_mlp"}, kMaxFfn);
  use_experts(model, experts);
}

}  // namespace zeroplan::describe
