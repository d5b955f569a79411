#include "planner/describe/model/check_model.hpp"

#include <fmt/format.h>

namespace zeroplan::describe {

namespace {

using Rules = std::vector<BrokenRule>;

void check_attention(const Model& model, Rules& rules) {
  if (model.heads <= 0) return;
  if (model.head_dim == 0 && model.hidden > 0 && model.hidden % model.heads != 0) {
    rules.push_back({"heads", fmt::format("found {}, expected a divisor of hidden {}, or head_dim beside it",
                                          model.heads, model.hidden)});
  }
  if (model.kv_heads > 0 && (model.kv_heads > model.heads || model.heads % model.kv_heads != 0)) {
    rules.push_back({"kv_heads", fmt::format("found {}, expected a divisor of the {} heads", model.kv_heads,
                                             model.heads)});
  }
  if (!model.latent) return;
  const LatentAttention& latent = *model.latent;
  if (model.kv_heads != 0 && model.kv_heads != model.heads) {
    rules.push_back({"kv_heads", "latent attention has as many key-value heads as heads"});
  }
  if (latent.qk_nope_dim > 0 && latent.qk_rope_dim > 0 && model.head_dim > 0 &&
      model.head_dim != latent.qk_nope_dim + latent.qk_rope_dim) {
    rules.push_back(
        {"head_dim", fmt::format("found {}, expected qk_nope_dim + qk_rope_dim = {} with latent attention",
                                 model.head_dim, latent.qk_nope_dim + latent.qk_rope_dim)});
  }
  if (model.biases != Bias::none) rules.push_back({"biases", "expected none with latent attention"});
  if (model.query_key_norm != QueryKeyNorm::none) {
    rules.push_back({"query_key_norm", "expected none with latent attention, which has norms of its own"});
  }
}

void check_experts(const Model& model, Rules& rules) {
  if (!model.experts) return;
  const MixtureOfExperts& experts = *model.experts;
  if (model.architecture == Architecture::encoder_decoder) {
    rules.push_back({"mixture_of_experts", "not modelled with architecture encoder_decoder"});
  }
  if (experts.experts > 0 && experts.top_k > experts.experts) {
    rules.push_back({"mixture_of_experts.top_k", fmt::format("found {}, expected at most the {} experts",
                                                             experts.top_k, experts.experts)});
  }
  if (model.layers > 0 && experts.layers > model.layers) {
    rules.push_back({"mixture_of_experts.layers",
                     fmt::format("found {}, expected at most the {} layers", experts.layers, model.layers)});
  }
}

void check_positions(const Model& model, Rules& rules) {
  const bool rotary = model.position == Position::rotary;
  const bool turned_otherwise = model.rotary != program::RotaryFrequencies{} || model.rotary_fraction != 1 ||
                                model.window_rotary || model.rotary_in_windows_only ||
                                !model.rotary_scaling.empty();
  if (!rotary && turned_otherwise) rules.push_back({"rotary", "expected only with position rotary"});
  const bool windowed = model.window.kind != program::AttentionWindow::Kind::none;
  if ((model.window_rotary || model.rotary_in_windows_only) && !windowed) {
    rules.push_back({"rotary", "window_base and windows_only are settings of an attention_window"});
  }
  if (rotary && model.rotary_fraction * static_cast<double>(model.head_dim) < 2 && model.head_dim >= 2) {
    rules.push_back(
        {"rotary.fraction", fmt::format("found {:g}, expected at least 2 of the {} elements of a head",
                                        model.rotary_fraction, model.head_dim)});
  }
  if (model.norms_per_layer == 4 && model.norm_placement != NormPlacement::before) {
    rules.push_back({"norm_placement", "expected before with 4 norms a layer, two of which stand behind"});
  }
}

// In floating point: a sum of wild shapes leaves 64 bits.
double estimate_parameters(const Model& model) {
  double sum = 0;
  for (const ParameterGroup& group : parameter_groups(model)) {
    for (const ParameterTensor& tensor : group.tensors) {
      sum += static_cast<double>(group.layers) * static_cast<double>(tensor.outputs) *
             static_cast<double>(tensor.inputs) * static_cast<double>(tensor.copies);
    }
  }
  return sum;
}

}  // namespace

std::vector<std::int32_t> every_layer(std::int64_t n, std::int64_t layers) {
  std::vector<std::int32_t> list;
  for (std::int64_t layer = n - 1; layer < layers; layer += n)
    list.push_back(static_cast<std::int32_t>(layer));
  return list;
}

std::vector<BrokenRule> check_model(const Model& model) {
  Rules rules;
  check_attention(model, rules);
  check_experts(model, rules);
  check_positions(model, rules);
  if (model.head_outputs > 0 && model.tied_embeddings) {
    rules.push_back(
        {"head_outputs", "found with tied_embeddings true: the embedding's rows are the vocabulary"});
  }
  if (model.norms_per_layer == 3) {
    rules.push_back({"norms_per_layer", "found 3, expected 1, 2 or 4"});
  }
  if (model.position != Position::learned && model.position != Position::relative_bias &&
      model.position_rows > 0) {
    rules.push_back({"position_rows", "only learned and relative_bias positions have a table"});
  }
  if (!model.norm_bias && model.norm == Norm::rms_norm) {
    rules.push_back({"norm_bias", "a setting of layer_norm: an RMSNorm has no bias"});
  }
  if (model.architecture == Architecture::decoder) {
    if (model.encoder_layers > 0) {
      rules.push_back({"encoder_layers", "expected only with architecture encoder_decoder"});
    }
    if (model.position == Position::relative_bias) {
      rules.push_back({"position", "relative_bias is modelled with architecture encoder_decoder only"});
    }
  }
  if (rules.empty()) {
    const double parameters = estimate_parameters(model);
    if (parameters > static_cast<double>(kMaxParameters)) {
      rules.push_back(
          {"", fmt::format("these shapes have {:.3g} parameters, expected at most 1e15", parameters)});
    }
  }
  return rules;
}

}  // namespace zeroplan::describe
