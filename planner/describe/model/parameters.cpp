#include "planner/describe/model/model.hpp"

namespace zeroplan::describe {

namespace {

using Kind = ParameterGroup::Kind;
using Tensors = std::vector<ParameterTensor>;

struct Names {
  std::string_view weight;
  std::string_view bias;
};

struct AttentionNames {
  Names query, key, value, output;
};

struct MlpNames {
  Names up, gate, down;
};

constexpr AttentionNames kSelfAttention = {
    {"attention.query.weight", "attention.query.bias"},
    {"attention.key.weight", "attention.key.bias"},
    {"attention.value.weight", "attention.value.bias"},
    {"attention.output.weight", "attention.output.bias"},
};
constexpr AttentionNames kCrossAttention = {
    {"cross_attention.query.weight", "cross_attention.query.bias"},
    {"cross_attention.key.weight", "cross_attention.key.bias"},
    {"cross_attention.value.weight", "cross_attention.value.bias"},
    {"cross_attention.output.weight", "cross_attention.output.bias"},
};
constexpr MlpNames kMlp = {
    {"mlp.up.weight", "mlp.up.bias"},
    {"mlp.gate.weight", "mlp.gate.bias"},
    {"mlp.down.weight", "mlp.down.bias"},
};
constexpr MlpNames kSharedExpert = {
    {"shared_expert.up.weight", "shared_expert.up.bias"},
    {"shared_expert.gate.weight", "shared_expert.gate.bias"},
    {"shared_expert.down.weight", "shared_expert.down.bias"},
};
constexpr MlpNames kExperts = {
    {"experts.up.weight", "experts.up.bias"},
    {"experts.gate.weight", "experts.gate.bias"},
    {"experts.down.weight", "experts.down.bias"},
};
constexpr Names kAttentionNorm = {"attention_norm.weight", "attention_norm.bias"};
constexpr Names kAttentionOutputNorm = {"attention_output_norm.weight", "attention_output_norm.bias"};
constexpr Names kCrossAttentionNorm = {"cross_attention_norm.weight", "cross_attention_norm.bias"};
constexpr Names kMlpNorm = {"mlp_norm.weight", "mlp_norm.bias"};
constexpr Names kMlpOutputNorm = {"mlp_output_norm.weight", "mlp_output_norm.bias"};
constexpr Names kFinalNorm = {"final_norm.weight", "final_norm.bias"};
constexpr Names kEncoderFinalNorm = {"encoder_final_norm.weight", "encoder_final_norm.bias"};

void add(Tensors& tensors, std::string_view name, Elements outputs, Elements inputs, Sharding sharding) {
  tensors.push_back({.name = name, .outputs = outputs, .inputs = inputs, .sharding = sharding});
}

// The bias of a row-parallel product is added once, after the all-reduce, so every rank holds all of it.
void add_linear(Tensors& tensors, const Names& names, Elements outputs, Elements inputs, Sharding sharding,
                bool bias) {
  add(tensors, names.weight, outputs, inputs, sharding);
  if (bias) add(tensors, names.bias, outputs, 1, sharding == Sharding::row ? Sharding::replicated : sharding);
}

void add_norm(Tensors& tensors, const Model& model, const Names& names) {
  add(tensors, names.weight, model.hidden, 1, Sharding::replicated);
  if (model.norm == Norm::layer_norm && model.norm_bias) {
    add(tensors, names.bias, model.hidden, 1, Sharding::replicated);
  }
}

void add_latent_attention(Tensors& tensors, const Model& model, const LatentAttention& latent) {
  const Elements query_width = model.heads * (latent.qk_nope_dim + latent.qk_rope_dim);
  if (latent.q_lora == 0) {
    add(tensors, kSelfAttention.query.weight, query_width, model.hidden, Sharding::column);
  } else {
    add(tensors, "attention.query_down.weight", latent.q_lora, model.hidden, Sharding::replicated);
    add(tensors, "attention.query_down_norm.weight", latent.q_lora, 1, Sharding::replicated);
    add(tensors, "attention.query_up.weight", query_width, latent.q_lora, Sharding::column);
  }
  add(tensors, "attention.key_value_down.weight", latent.kv_lora + latent.qk_rope_dim, model.hidden,
      Sharding::replicated);
  add(tensors, "attention.key_value_down_norm.weight", latent.kv_lora, 1, Sharding::replicated);
  add(tensors, "attention.key_value_up.weight", model.heads * (latent.qk_nope_dim + latent.v_dim),
      latent.kv_lora, Sharding::column);
  add(tensors, kSelfAttention.output.weight, model.hidden, model.heads * latent.v_dim, Sharding::row);
}

void add_attention(Tensors& tensors, const Model& model, const AttentionNames& names) {
  const Elements query_width = model.heads * model.head_dim;
  const Elements key_width = model.kv_heads * model.head_dim;
  const bool input_biases = model.biases != Bias::none;
  const bool output_bias = model.biases == Bias::qkvo || model.biases == Bias::all;
  add_linear(tensors, names.query, query_width, model.hidden, Sharding::column, input_biases);
  add_linear(tensors, names.key, key_width, model.hidden, Sharding::key_value, input_biases);
  add_linear(tensors, names.value, key_width, model.hidden, Sharding::key_value, input_biases);
  if (model.query_key_norm == QueryKeyNorm::head) {
    add(tensors, "attention.query_norm.weight", model.head_dim, 1, Sharding::replicated);
    add(tensors, "attention.key_norm.weight", model.head_dim, 1, Sharding::replicated);
  } else if (model.query_key_norm == QueryKeyNorm::full) {
    add(tensors, "attention.query_norm.weight", query_width, 1, Sharding::column);
    add(tensors, "attention.key_norm.weight", key_width, 1, Sharding::key_value);
  }
  add_linear(tensors, names.output, model.hidden, query_width, Sharding::row, output_bias);
}

void add_mlp(Tensors& tensors, const Model& model, const MlpNames& names, Elements ffn, bool biases) {
  add_linear(tensors, names.up, ffn, model.hidden, Sharding::column, biases);
  if (model.gated_ffn) add_linear(tensors, names.gate, ffn, model.hidden, Sharding::column, biases);
  add_linear(tensors, names.down, model.hidden, ffn, Sharding::row, biases);
}

void add_experts(Tensors& tensors, const Model& model, const MixtureOfExperts& experts) {
  add_linear(tensors, {"router.weight", "router.bias"}, experts.experts, model.hidden, Sharding::replicated,
             experts.biases);
  const std::size_t first = tensors.size();
  add_mlp(tensors, model, kExperts, experts.expert_ffn, experts.biases);
  for (std::size_t i = first; i < tensors.size(); ++i) {
    tensors[i].copies = experts.experts;
    tensors[i].expert = true;
  }
  if (experts.shared_ffn > 0) {
    add_mlp(tensors, model, kSharedExpert, experts.shared_ffn, model.biases == Bias::all);
  }
}

void add_extra(Tensors& tensors, const Model& model, ExtraParameters::Per per) {
  for (const ExtraParameters& extra : model.extra) {
    if (extra.per == per) add(tensors, extra.name, extra.elements, 1, Sharding::replicated);
  }
}

ParameterGroup make_layers(const Model& model, Kind kind, std::int64_t layers) {
  ParameterGroup group{.kind = kind, .layers = layers, .tensors = {}};
  Tensors& tensors = group.tensors;
  tensors.reserve(24 + model.extra.size());

  const bool norms_after = model.norms_per_layer == 4;
  if (model.norms_per_layer >= 1) add_norm(tensors, model, kAttentionNorm);
  if (model.latent) {
    add_latent_attention(tensors, model, *model.latent);
  } else {
    add_attention(tensors, model, kSelfAttention);
  }
  if (norms_after) add_norm(tensors, model, kAttentionOutputNorm);
  if (kind == Kind::decoder_layer) {
    add_norm(tensors, model, kCrossAttentionNorm);
    add_attention(tensors, model, kCrossAttention);
  }
  if (model.norms_per_layer >= 2) add_norm(tensors, model, kMlpNorm);
  if (kind == Kind::expert_layer) {
    add_experts(tensors, model, *model.experts);
  } else {
    add_mlp(tensors, model, kMlp, model.ffn, model.biases == Bias::all);
  }
  if (norms_after) add_norm(tensors, model, kMlpOutputNorm);
  add_extra(tensors, model, ExtraParameters::Per::layer);
  if (kind == Kind::expert_layer) add_extra(tensors, model, ExtraParameters::Per::expert_layer);
  return group;
}

Elements embedding_width(const Model& model) {
  return model.embedding_width > 0 ? model.embedding_width : model.hidden;
}

ParameterGroup make_embedding(const Model& model, std::int64_t sequence) {
  ParameterGroup group{.kind = Kind::embedding, .layers = 1, .tensors = {}};
  Tensors& tensors = group.tensors;
  tensors.reserve(4);
  const Elements width = embedding_width(model);
  add(tensors, "embedding.token", model.vocabulary, width, Sharding::vocabulary);
  if (width != model.hidden) {
    add(tensors, "embedding.projection.weight", model.hidden, width, Sharding::replicated);
  }
  if (model.position == Position::learned) {
    const std::int64_t rows = model.position_rows > 0 ? model.position_rows : sequence;
    if (rows > 0) add(tensors, "embedding.position", rows, model.hidden, Sharding::replicated);
  } else if (model.position == Position::relative_bias) {
    if (model.encoder_layers > 0) {
      add(tensors, "encoder_relative_bias.weight", model.heads, model.position_rows, Sharding::column);
    }
    add(tensors, "relative_bias.weight", model.heads, model.position_rows, Sharding::column);
  }
  return group;
}

ParameterGroup make_head(const Model& model) {
  ParameterGroup group{.kind = Kind::head, .layers = 1, .tensors = {}};
  Tensors& tensors = group.tensors;
  tensors.reserve(8);
  if (model.final_norm) {
    if (model.encoder_layers > 0) add_norm(tensors, model, kEncoderFinalNorm);
    add_norm(tensors, model, kFinalNorm);
  }
  const Elements width = embedding_width(model);
  if (width != model.hidden)
    add(tensors, "head.projection.weight", width, model.hidden, Sharding::replicated);
  if (!model.tied_embeddings) add(tensors, "head.weight", model.output_rows(), width, Sharding::vocabulary);
  if (model.head_bias) add(tensors, "head.bias", model.output_rows(), 1, Sharding::vocabulary);
  return group;
}

// Elements left out of the active count: multi-token-prediction layers and the like.
Elements inactive_extra(const Model& model) {
  Elements sum = 0;
  for (const ExtraParameters& extra : model.extra) {
    if (extra.active) continue;
    std::int64_t times = 1;
    if (extra.per == ExtraParameters::Per::layer) times = model.layers + model.encoder_layers;
    if (extra.per == ExtraParameters::Per::expert_layer) times = model.experts ? model.experts->layers : 0;
    sum += extra.elements * times;
  }
  return sum;
}

}  // namespace

Elements ParameterGroup::elements_per_layer() const {
  Elements sum = 0;
  for (const ParameterTensor& tensor : tensors) sum += tensor.elements();
  return sum;
}

std::vector<ParameterGroup> parameter_groups(const Model& model, std::int64_t sequence) {
  std::vector<ParameterGroup> groups;
  groups.reserve(5);
  groups.push_back(make_embedding(model, sequence));
  if (model.architecture == Architecture::encoder_decoder) {
    groups.push_back(make_layers(model, Kind::encoder_layer, model.encoder_layers));
    groups.push_back(make_layers(model, Kind::decoder_layer, model.layers));
  } else {
    const std::int64_t expert_layers = model.experts ? model.experts->layers : 0;
    if (model.layers > expert_layers) {
      groups.push_back(make_layers(model, Kind::dense_layer, model.layers - expert_layers));
    }
    if (expert_layers > 0) groups.push_back(make_layers(model, Kind::expert_layer, expert_layers));
  }
  groups.push_back(make_head(model));

  ParameterGroup extra{.kind = Kind::extra, .layers = 1, .tensors = {}};
  add_extra(extra.tensors, model, ExtraParameters::Per::model);
  if (!extra.tensors.empty()) groups.push_back(std::move(extra));
  return groups;
}

Elements count_parameters(const Model& model, std::int64_t sequence) {
  if (!model.is_shape()) return model.only_parameters;
  Elements sum = 0;
  for (const ParameterGroup& group : parameter_groups(model, sequence)) {
    sum += group.layers * group.elements_per_layer();
  }
  return sum;
}

Elements count_active_parameters(const Model& model, std::int64_t sequence) {
  if (!model.is_shape()) return model.only_parameters;
  Elements sum = -inactive_extra(model);
  for (const ParameterGroup& group : parameter_groups(model, sequence)) {
    for (const ParameterTensor& tensor : group.tensors) {
      const std::int64_t used = tensor.expert ? model.experts->top_k : tensor.copies;
      sum += group.layers * tensor.outputs * tensor.inputs * used;
    }
  }
  return sum;
}

}  // namespace zeroplan::describe
