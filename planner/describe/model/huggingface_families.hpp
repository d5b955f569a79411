#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "planner/describe/model/model.hpp"
#include "planner/describe/text/document.hpp"
#include "planner/describe/text/known_keys.hpp"

// The readers of config.json, one per family of keys. Each is given a Model with default values and fills it;
// problems go to the MapReader. A key that is absent takes the default of the transformers library for that
// model type, as written beside the key; the sizes that every published file states have none and are
// required.
namespace zeroplan::describe {

// planner/describe/model/huggingface_fields.cpp: keys that several families share.

// The value of the first of `keys` that is there, which are names of one size: a problem where two differ. Enters
// "missing" under the first name when none is there.
std::int64_t required_size(MapReader& config, std::initializer_list<std::string_view> keys,
                           std::int64_t maximum);
std::int64_t size_or(MapReader& config, std::string_view key, std::int64_t fallback, std::int64_t maximum);
std::int64_t size_or(MapReader& config, std::initializer_list<std::string_view> keys, std::int64_t fallback,
                     std::int64_t maximum);
bool flag_or(MapReader& config, std::string_view key, bool fallback);
bool is_null(MapReader& config, std::string_view key);  // there, and explicitly null
void read_activation(MapReader& config, std::string_view key, std::string_view fallback, Model& model);

// hidden_size, num_hidden_layers, num_attention_heads, vocab_size, max_position_embeddings
void read_sizes(MapReader& config, Model& model);
// head_dim, or hidden / heads where the file has none.
void read_head_dim(MapReader& config, Model& model);
// num_key_value_heads: `fallback` when absent (0: as many as heads); null means as many as heads.
// Qwen's windows are off unless use_sliding_window says otherwise; what stands beside it is inert then.
void ignore_unused_windows(MapReader& config);
void read_kv_heads(MapReader& config, Model& model, std::int64_t fallback);
// tie_word_embeddings
void read_tied(MapReader& config, Model& model, bool fallback);
void add_extra(Model& model, std::string_view name, ExtraParameters::Per per, Elements elements);

// planner/describe/model/huggingface_head.cpp: the class that `architectures` names, of which `prefixes` (separated by blanks,
// the one that messages show first) are the family's. ...ForCausalLM is what the family's reader described; a
// classifier's head has its labels instead of the vocabulary; any other class is refused.
void read_architecture(MapReader& config, std::string_view prefixes, Model& model);

// planner/describe/model/huggingface_computation.cpp: how a model computes.

// rope_theta (rotary_emb_base), partial_rotary_factor (rotary_pct), rope_scaling and rope_parameters.
void read_rotary(MapReader& config, Model& model, double base = 10000, double fraction = 1);
// rotary_dim, of GPT-J; null turns whole heads.
void read_rotary_dims(MapReader& config, Model& model, std::int64_t dims);
// The base of windowed layers; after the window was read.
void read_window_rotary(MapReader& config, Model& model, std::string_view key, double base);
// no_rope_layers, of Llama 4: 0 for each layer that has neither rotary positions nor a window. Behind read_window.
void read_layers_without_rotary(MapReader& config, Model& model);
void read_norm_epsilon(MapReader& config, Model& model, std::string_view key, double fallback);
// The window of `key`, `size` where the file leaves it out and none where it says null or `size` is 0, in the
// layers that layer_types says; without that in all but every `full_every`-th (0: in all).
void read_window(MapReader& config, Model& model, program::AttentionWindow::Kind kind, std::string_view key,
                 std::int64_t size, std::int64_t full_every);
// Qwen's: with use_sliding_window, in layers from max_window_layers on.
void read_late_window(MapReader& config, Model& model, std::int64_t first_layers);
// GPT-Neo's attention_types and window_size; global and local by turns without them.
void read_local_layers(MapReader& config, Model& model);
// null or a fallback of 0: none.
void read_soft_cap(MapReader& config, std::string_view key, double fallback, double& cap);
void read_attention_scale_dim(MapReader& config, std::string_view key, double fallback, Model& model);

using FamilyReader = void (*)(MapReader& config, std::string_view type, Model& model);

// planner/describe/model/huggingface_gpt.cpp: LayerNorm and a plain MLP.
void read_gpt2(MapReader& config, std::string_view type, Model& model);     // gpt2, gpt_bigcode
void read_gptj(MapReader& config, std::string_view type, Model& model);     // gptj, codegen
void read_gpt_neo(MapReader& config, std::string_view type, Model& model);  // gpt_neo
void read_gpt_neox(MapReader& config, std::string_view type, Model& model);
void read_opt(MapReader& config, std::string_view type, Model& model);
void read_bloom(MapReader& config, std::string_view type, Model& model);
void read_falcon(MapReader& config, std::string_view type, Model& model);
void read_phi(MapReader& config, std::string_view type, Model& model);
void read_mpt(MapReader& config, std::string_view type, Model& model);
void read_starcoder2(MapReader& config, std::string_view type, Model& model);
void read_t5(MapReader& config, std::string_view type, Model& model);  // t5, mt5

// planner/describe/model/huggingface_llama.cpp: RMSNorm, rotary positions and a gated MLP.
void read_llama(MapReader& config, std::string_view type,
                Model& model);  // llama, mistral, qwen2, qwen3, phi3, olmo2
void read_gemma(MapReader& config, std::string_view type, Model& model);  // gemma, gemma2, gemma3_text

// planner/describe/model/huggingface_experts.cpp: the same with a mixture of experts.
void read_mixtral(MapReader& config, std::string_view type, Model& model);
void read_qwen_experts(MapReader& config, std::string_view type, Model& model);  // qwen2_moe, qwen3_moe
void read_deepseek(MapReader& config, std::string_view type,
                   Model& model);  // deepseek_v2, deepseek_v3, kimi_k2
void read_glm4_experts(MapReader& config, std::string_view type, Model& model);  // glm4_moe
void read_gpt_oss(MapReader& config, std::string_view type, Model& model);
void read_llama4(MapReader& config, std::string_view type, Model& model);  // llama4_text

}  // namespace zeroplan::describe
