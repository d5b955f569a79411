#include "reports/model_data.hpp"

#include <array>
#include <string>

namespace zeroplan::reports {
namespace {

using describe::Model;

template <class Enumeration, std::size_t n>
std::string_view at(const std::array<std::string_view, n>& names, Enumeration value) {
  return names[static_cast<std::size_t>(value)];
}

Data experts_data(const describe::MixtureOfExperts& experts) {
  return Data::map()
      .set("experts", experts.experts)
      .set("top_k", experts.top_k)
      .set("expert_ffn", experts.expert_ffn)
      .set("shared_ffn", experts.shared_ffn)
      .set("layers", experts.layers)
      .set("biases", experts.biases);
}

Data latent_data(const describe::LatentAttention& latent) {
  return Data::map()
      .set("q_lora", latent.q_lora)
      .set("kv_lora", latent.kv_lora)
      .set("qk_nope_dim", latent.qk_nope_dim)
      .set("qk_rope_dim", latent.qk_rope_dim)
      .set("v_dim", latent.v_dim);
}

Data rotary_data(const Model& model) {
  using Scaling = program::RotaryFrequencies::Scaling;
  const program::RotaryFrequencies& rotary = model.rotary;
  Data data = Data::map();
  data.set("base", rotary.base).set("fraction", model.rotary_fraction);
  if (model.window_rotary) data.set("window_base", model.window_rotary->base);
  data.set("windows_only", model.rotary_in_windows_only);
  if (rotary.scaling == Scaling::none) {
    data.set("scaling", model.rotary_scaling.empty() ? Data("none") : Data(model.rotary_scaling));
    return data;
  }
  data.set("scaling", rotary.scaling == Scaling::linear ? "linear" : "llama3")
      .set("scaling_factor", rotary.factor);
  return data;
}

Data window_data(const program::AttentionWindow& window, std::int64_t layers) {
  const auto full = static_cast<std::int64_t>(window.full_layers.size());
  return Data::map()
      .set("kind", window.kind == program::AttentionWindow::Kind::sliding ? "sliding" : "chunked")
      .set("size", window.size)
      .set("windowed_layers", layers - full)
      .set("full_layers", full);
}

void set_computation(Data& data, const Model& model) {
  data.set("norm_placement", name_of(model.norm_placement))
      .set("norm_epsilon", model.norm_epsilon)
      .set("norm_weight_offset", model.norm_weight_offset)
      .set("scaled_embeddings", model.scaled_embeddings)
      .set("attention_scale_dim",
           model.attention_scale_dim > 0 ? model.attention_scale_dim : static_cast<double>(model.head_dim))
      .set("attention_soft_cap", model.attention_soft_cap)
      .set("logits_soft_cap", model.logits_soft_cap);
  if (model.position == describe::Position::rotary) data.set("rotary", rotary_data(model));
  if (model.window.kind != program::AttentionWindow::Kind::none) {
    data.set("attention_window", window_data(model.window, model.layers));
  }
}

void set_shape(Data& data, const Model& model) {
  data.set("architecture", name_of(model.architecture))
      .set("hidden", model.hidden)
      .set("layers", model.layers)
      .set("encoder_layers", model.encoder_layers)
      .set("heads", model.heads)
      .set("kv_heads", model.kv_heads)
      .set("head_dim", model.head_dim)
      .set("ffn", model.ffn)
      .set("gated_ffn", model.gated_ffn)
      .set("activation", name_of(model.activation))
      .set("vocabulary", model.vocabulary)
      .set("max_sequence", model.max_sequence)
      .set("position", name_of(model.position))
      .set("position_rows", model.position_rows)
      .set("embedding_width", model.embedding_width == 0 ? model.hidden : model.embedding_width)
      .set("tied_embeddings", model.tied_embeddings)
      .set("head_bias", model.head_bias)
      .set("head_outputs", model.output_rows())
      .set("biases", name_of(model.biases))
      .set("norm", name_of(model.norm))
      .set("norm_bias", model.norm == describe::Norm::layer_norm && model.norm_bias)
      .set("norms_per_layer", model.norms_per_layer)
      .set("final_norm", model.final_norm)
      .set("parallel_block", model.parallel_block)
      .set("query_key_norm", name_of(model.query_key_norm));
  set_computation(data, model);
  if (model.experts) data.set("mixture_of_experts", experts_data(*model.experts));
  if (model.latent) data.set("latent_attention", latent_data(*model.latent));
}

}  // namespace

Data model_data(const Model& model, std::int64_t sequence) {
  Data data = Data::map();
  data.set("name", model.name).set("source", model.description_source);
  data.set("parameters", describe::count_parameters(model, sequence))
      .set("active_parameters", describe::count_active_parameters(model, sequence));
  if (model.is_shape()) {
    set_shape(data, model);
  } else {
    data.set("largest_layer", model.only_largest_layer);
  }
  data.set("notes", texts_data(model.notes));
  return data;
}

std::string_view name_of(describe::Architecture value) {
  return at(std::array<std::string_view, 2>{"decoder", "encoder_decoder"}, value);
}
std::string_view name_of(describe::Norm value) {
  return at(std::array<std::string_view, 2>{"layer_norm", "rms_norm"}, value);
}
std::string_view name_of(describe::Activation value) {
  return at(std::array<std::string_view, 4>{"gelu", "gelu_tanh", "silu", "relu"}, value);
}
std::string_view name_of(describe::Position value) {
  return at(std::array<std::string_view, 5>{"learned", "rotary", "alibi", "relative_bias", "none"}, value);
}
std::string_view name_of(describe::Bias value) {
  return at(std::array<std::string_view, 4>{"none", "qkv", "qkvo", "all"}, value);
}
std::string_view name_of(describe::QueryKeyNorm value) {
  return at(std::array<std::string_view, 3>{"none", "head", "full"}, value);
}
std::string_view name_of(describe::NormPlacement value) {
  return at(std::array<std::string_view, 3>{"before", "branch", "after"}, value);
}
std::string_view name_of(describe::Sharding value) {
  return at(std::array<std::string_view, 5>{"replicated", "column", "row", "vocabulary", "key_value"}, value);
}
std::string_view name_of(describe::ParameterGroup::Kind value) {
  return at(std::array<std::string_view, 7>{"embedding", "layer", "expert layer", "encoder layer",
                                            "decoder layer", "head", "extra"},
            value);
}

}  // namespace zeroplan::reports
