#include <algorithm>

#include "planner/describe/model/check_model.hpp"
#include "planner/describe/model/huggingface_families.hpp"
#include "planner/describe/model/huggingface_keys.hpp"

namespace zeroplan::describe {

namespace {

using Per = ExtraParameters::Per;

void read_gpt2_sizes(MapReader& config, Model& model) {
  model.hidden = required_size(config, {"n_embd", "hidden_size"}, kMaxHidden);
  model.layers = required_size(config, {"n_layer", "num_hidden_layers"}, kMaxLayers);
  model.heads = required_size(config, {"n_head", "num_attention_heads"}, kMaxHeads);
  model.kv_heads = model.heads;
  model.vocabulary = required_size(config, {"vocab_size"}, kMaxVocabulary);
  model.ffn = size_or(config, "n_inner", 4 * model.hidden, kMaxFfn);
  read_head_dim(config, model);
  read_activation(config, "activation_function", "gelu_new", model);
  read_norm_epsilon(config, model, "layer_norm_epsilon", 1e-5);
}

std::int64_t gpt2_positions(MapReader& config, std::int64_t fallback) {
  return size_or(config, {"n_positions", "n_ctx", "max_position_embeddings"}, fallback, kMaxPositionRows);
}

void use_learned_positions(Model& model, std::int64_t sequence, std::int64_t rows) {
  model.position = Position::learned;
  model.max_sequence = sequence;
  model.position_rows = rows;
}

// For models that have biases on the MLP but not on attention, which Model::biases cannot say.
void add_mlp_biases(Model& model) { add_extra(model, "mlp.biases", Per::layer, model.ffn + model.hidden); }

}  // namespace

void read_gpt2(MapReader& config, std::string_view type, Model& model) {
  read_gpt2_sizes(config, model);
  const std::int64_t positions = gpt2_positions(config, 1024);
  use_learned_positions(model, positions, positions);
  if (type == "gpt_bigcode" && flag_or(config, "multi_query", true)) model.kv_heads = 1;
  if (flag_or(config, "add_cross_attention", false)) {
    config.problem("add_cross_attention",
                   "found true, expected false: cross attention is modelled for T5 only");
  }
  read_tied(config, model, true);
}

void read_gptj(MapReader& config, std::string_view, Model& model) {
  read_gpt2_sizes(config, model);
  model.max_sequence = gpt2_positions(config, 2048);
  model.position = Position::rotary;
  read_rotary_dims(config, model, 64);
  model.biases = Bias::none;
  add_mlp_biases(model);
  model.norms_per_layer = 1;
  model.parallel_block = true;
  model.head_bias = true;
  read_tied(config, model, false);
}

void read_gpt_neo(MapReader& config, std::string_view, Model& model) {
  model.hidden = required_size(config, {"hidden_size"}, kMaxHidden);
  model.layers = required_size(config, {"num_layers", "num_hidden_layers"}, kMaxLayers);
  model.heads = required_size(config, {"num_heads", "num_attention_heads"}, kMaxHeads);
  model.kv_heads = model.heads;
  model.vocabulary = required_size(config, {"vocab_size"}, kMaxVocabulary);
  model.ffn = size_or(config, "intermediate_size", 4 * model.hidden, kMaxFfn);
  read_head_dim(config, model);
  read_activation(config, "activation_function", "gelu_new", model);
  const std::int64_t positions = size_or(config, "max_position_embeddings", 2048, kMaxPositionRows);
  use_learned_positions(model, positions, positions);
  read_norm_epsilon(config, model, "layer_norm_epsilon", 1e-5);
  read_local_layers(config, model);
  model.attention_scale_dim = 1;  // GPT-Neo does not scale its scores
  model.biases = Bias::none;
  add_extra(model, "attention.output.bias", Per::layer, model.hidden);
  add_mlp_biases(model);
  read_tied(config, model, true);
}

void read_gpt_neox(MapReader& config, std::string_view, Model& model) {
  read_sizes(config, model);
  model.kv_heads = model.heads;
  model.ffn = required_size(config, {"intermediate_size"}, kMaxFfn);
  read_head_dim(config, model);
  read_activation(config, "hidden_act", "gelu", model);
  model.position = Position::rotary;
  read_rotary(config, model, 10000, 0.25);
  read_norm_epsilon(config, model, "layer_norm_eps", 1e-5);
  model.parallel_block = flag_or(config, "use_parallel_residual", true);
  if (!flag_or(config, "attention_bias", true)) {
    model.biases = Bias::none;
    add_mlp_biases(model);
  }
  read_tied(config, model, false);
}

void read_opt(MapReader& config, std::string_view, Model& model) {
  read_sizes(config, model);
  model.kv_heads = model.heads;
  model.ffn = required_size(config, {"ffn_dim"}, kMaxFfn);
  read_head_dim(config, model);
  read_activation(config, "activation_function", "relu", model);
  // The table has two rows more than there are positions: the first two are kept for padding.
  const std::int64_t positions = size_or(config, "max_position_embeddings", 2048, kMaxPositionRows - 2);
  use_learned_positions(model, positions, positions > 0 ? positions + 2 : 0);
  const std::int64_t width = size_or(config, "word_embed_proj_dim", model.hidden, kMaxHidden);
  if (width != model.hidden) model.embedding_width = width;
  if (!flag_or(config, "do_layer_norm_before", true)) model.norm_placement = NormPlacement::after;
  model.final_norm =
      flag_or(config, "do_layer_norm_before", true) && !flag_or(config, "_remove_final_layer_norm", false);
  if (!flag_or(config, "enable_bias", true)) model.biases = Bias::none;
  if (!flag_or(config, "layer_norm_elementwise_affine", true)) {
    config.problem("layer_norm_elementwise_affine",
                   "found false, expected true: norms without weights are not modelled");
  }
  read_tied(config, model, true);
}

void read_bloom(MapReader& config, std::string_view, Model& model) {
  model.hidden = required_size(config, {"hidden_size", "n_embed"}, kMaxHidden);
  model.layers = required_size(config, {"n_layer", "num_hidden_layers"}, kMaxLayers);
  model.heads = required_size(config, {"n_head", "num_attention_heads"}, kMaxHeads);
  model.kv_heads = model.heads;
  model.vocabulary = required_size(config, {"vocab_size"}, kMaxVocabulary);
  model.ffn = 4 * model.hidden;
  model.max_sequence = size_or(config, "seq_length", 0, kMaxSequence);
  read_head_dim(config, model);
  model.position = Position::alibi;
  model.activation = Activation::gelu_tanh;  // its own; no key says it
  read_norm_epsilon(config, model, "layer_norm_epsilon", 1e-5);
  add_extra(model, "embedding_norm", Per::model, 2 * model.hidden);
  read_tied(config, model, true);
}

void read_falcon(MapReader& config, std::string_view, Model& model) {
  model.hidden = required_size(config, {"hidden_size"}, kMaxHidden);
  model.layers = required_size(config, {"num_hidden_layers", "n_layer"}, kMaxLayers);
  model.heads = required_size(config, {"num_attention_heads", "n_head"}, kMaxHeads);
  model.vocabulary = required_size(config, {"vocab_size"}, kMaxVocabulary);
  model.ffn = size_or(config, "ffn_hidden_size", 4 * model.hidden, kMaxFfn);
  model.max_sequence = size_or(config, "max_position_embeddings", 2048, kMaxSequence);
  read_head_dim(config, model);
  read_activation(config, "activation", "gelu", model);
  const bool new_architecture = flag_or(config, "new_decoder_architecture", false);
  const bool multi_query = flag_or(config, "multi_query", true);
  model.parallel_block = new_architecture || flag_or(config, "parallel_attn", true);
  // Both are for the new architecture only.
  const std::int64_t kv_heads = size_or(config, {"num_kv_heads", "n_head_kv"}, model.heads, kMaxHeads);
  const std::int64_t norms = size_or(config, "num_ln_in_parallel_attn", 2, 2);
  if (new_architecture) {
    model.kv_heads = kv_heads;
    model.norms_per_layer = norms;
  } else {
    model.kv_heads = multi_query ? 1 : model.heads;
    model.norms_per_layer = model.parallel_block ? 1 : 2;
  }
  model.biases = flag_or(config, "bias", false) ? Bias::all : Bias::none;
  model.position = flag_or(config, "alibi", false) ? Position::alibi : Position::rotary;
  if (model.position == Position::rotary) {
    read_rotary(config, model);
  } else {
    for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters"}) config.ignore(key);
  }
  read_norm_epsilon(config, model, "layer_norm_epsilon", 1e-5);
  read_tied(config, model, true);
}

void read_phi(MapReader& config, std::string_view, Model& model) {
  read_sizes(config, model);
  read_kv_heads(config, model, 0);
  model.ffn = required_size(config, {"intermediate_size"}, kMaxFfn);
  read_head_dim(config, model);
  read_activation(config, "hidden_act", "gelu_new", model);
  model.position = Position::rotary;
  read_rotary(config, model, 10000, 0.5);
  read_norm_epsilon(config, model, "layer_norm_eps", 1e-5);
  model.parallel_block = true;
  model.norms_per_layer = 1;
  model.head_bias = true;
  if (flag_or(config, "qk_layernorm", false)) {
    add_extra(model, "attention.query_key_norms", Per::layer, std::max<Elements>(1, 4 * model.head_dim));
  }
  read_tied(config, model, false);
}

void read_mpt(MapReader& config, std::string_view, Model& model) {
  model.hidden = required_size(config, {"d_model", "hidden_size"}, kMaxHidden);
  model.layers = required_size(config, {"n_layers", "num_hidden_layers"}, kMaxLayers);
  model.heads = required_size(config, {"n_heads", "num_attention_heads"}, kMaxHeads);
  model.kv_heads = model.heads;
  model.vocabulary = required_size(config, {"vocab_size"}, kMaxVocabulary);
  model.ffn = size_or(config, "expansion_ratio", 4, 64) * model.hidden;
  model.activation = Activation::gelu;  // no key says it
  read_head_dim(config, model);
  const std::int64_t sequence = size_or(config, "max_seq_len", 2048, kMaxPositionRows);
  read_norm_epsilon(config, model, "layer_norm_epsilon", 1e-5);
  if (flag_or(config, "no_bias", true)) {
    model.biases = Bias::none;
    model.norm_bias = false;
  }
  bool alibi = true;
  const bool learned = flag_or(config, "learned_pos_emb", true);
  if (const Value* attention = config.map("attn_config")) {
    MapReader map(*attention, config.source(), config.dotted("attn_config"), config.problems());
    alibi = flag_or(map, "alibi", true);
    if (flag_or(map, "qk_ln", false)) model.query_key_norm = QueryKeyNorm::full;
    const std::string kind = map.string("attn_type").value_or("multihead_attention");
    if (kind == "multiquery_attention") {
      model.kv_heads = 1;
    } else if (kind == "grouped_query_attention") {
      model.kv_heads = required_size(map, {"kv_n_heads"}, kMaxHeads);
    } else if (kind != "multihead_attention") {
      map.problem("attn_type",
                  "found " + quoted(kind) +
                      ", expected multihead_attention, multiquery_attention or grouped_query_attention");
    }
    settle_keys(map, huggingface_attention_keys(), AskedKeys::are_used, model.notes, &model.left_out);
  }
  if (alibi) {
    model.position = Position::alibi;
    model.max_sequence = sequence;
  } else if (learned) {
    use_learned_positions(model, sequence, sequence);
  } else {
    model.position = Position::none;
    model.max_sequence = sequence;
  }
  read_tied(config, model, true);
}

void read_starcoder2(MapReader& config, std::string_view, Model& model) {
  read_sizes(config, model);
  read_kv_heads(config, model, 2);
  model.ffn = required_size(config, {"intermediate_size"}, kMaxFfn);
  read_head_dim(config, model);
  read_activation(config, "hidden_act", "gelu_pytorch_tanh", model);
  model.position = Position::rotary;
  read_rotary(config, model);
  read_norm_epsilon(config, model, "norm_epsilon", 1e-5);
  read_window(config, model, program::AttentionWindow::Kind::sliding, "sliding_window", 0, 0);
  model.biases = flag_or(config, "use_bias", true) ? Bias::all : Bias::none;
  read_tied(config, model, true);
}

void read_t5(MapReader& config, std::string_view type, Model& model) {
  model.architecture = Architecture::encoder_decoder;
  if (!flag_or(config, "is_encoder_decoder", true)) {
    config.problem("is_encoder_decoder", "found false, expected true: one stack of T5 alone is not modelled");
  }
  model.hidden = required_size(config, {"d_model", "hidden_size"}, kMaxHidden);
  model.encoder_layers = required_size(config, {"num_layers", "num_hidden_layers"}, kMaxLayers);
  model.layers = size_or(config, "num_decoder_layers", model.encoder_layers, kMaxLayers);
  model.heads = required_size(config, {"num_heads", "num_attention_heads"}, kMaxHeads);
  model.kv_heads = model.heads;
  model.head_dim = size_or(config, {"d_kv", "head_dim"}, 64, kMaxHeadDim);
  model.ffn = required_size(config, {"d_ff"}, kMaxFfn);
  model.vocabulary = required_size(config, {"vocab_size"}, kMaxVocabulary);
  model.max_sequence = size_or(config, "n_positions", 0, kMaxSequence);
  model.position = Position::relative_bias;
  model.position_rows = size_or(config, "relative_attention_num_buckets", 32, kMaxPositionRows);
  model.norm = Norm::rms_norm;
  read_norm_epsilon(config, model, "layer_norm_epsilon", 1e-6);
  model.biases = Bias::none;
  const std::string projection =
      config.string("feed_forward_proj").value_or(type == "mt5" ? "gated-gelu" : "relu");
  model.gated_ffn = projection.starts_with("gated-");
  if (projection == "gated-gelu") {  // transformers takes gelu_new for this name
    model.activation = Activation::gelu_tanh;
  } else if (projection.ends_with("gelu")) {
    model.activation = Activation::gelu;
  } else if (projection.ends_with("silu")) {
    model.activation = Activation::silu;
  } else if (projection.ends_with("relu")) {
    model.activation = Activation::relu;
  } else {
    config.problem("feed_forward_proj",
                   "found " + quoted(projection) + ", expected relu, gelu, gated-gelu or gated-silu");
  }
  read_tied(config, model, type != "mt5");
}

}  // namespace zeroplan::describe
