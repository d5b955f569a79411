#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/describe/text/document.hpp"
#include "planner/describe/text/left_out.hpp"
#include "planner/instructions/model_constants.hpp"
#include "planner/units.hpp"

// The model to train, as shapes. Counts are elements. Symbols as in the papers: h hidden, L layers, a heads,
// d head_dim, f ffn, V vocabulary.
namespace zeroplan::describe {

enum class Architecture { decoder, encoder_decoder };
enum class Norm { layer_norm, rms_norm };
// gelu: x times the normal distribution's function at x. gelu_tanh: its tanh form (arXiv 1606.08415, Section 2),
// at most 5e-4 from it, as GPT-2, Gemma and Megatron-LM compute it.
enum class Activation { gelu, gelu_tanh, silu, relu };
enum class Position { learned, rotary, alibi, relative_bias, none };
enum class Bias { none, qkv, qkvo, all };
enum class QueryKeyNorm { none, head, full };
// Where a layer's norms stand: before attention and MLP, on what they add to the residual stream (OLMo 2), or
// after that has been added (OPT-350M, the first Transformer). With norms_per_layer 4 there are two each.
enum class NormPlacement { before, branch, after };

// Mixture of experts: in `layers` of the model's layers the MLP is `experts` MLPs of width `expert_ffn`, of
// which a token uses `top_k`, with a router and shared experts of total width `shared_ffn`.
struct MixtureOfExperts {
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  std::int64_t expert_ffn = 0;
  std::int64_t shared_ffn = 0;  // 0: none
  // The other Model::layers - layers are dense, with Model::ffn. They are described before the expert layers,
  // also where a model has the two alternate (Llama 4 Maverick): totals are the same, only the order of the
  // layers is simplified.
  std::int64_t layers = 0;
  bool biases = false;  // of the router and of every routed expert (gpt-oss)
};

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): low-rank query and key-value projections.
struct LatentAttention {
  std::int64_t q_lora = 0;  // 0: queries are projected directly
  std::int64_t kv_lora = 0;
  std::int64_t qk_nope_dim = 0;
  std::int64_t qk_rope_dim = 0;
  std::int64_t v_dim = 0;
};

// Parameters that no other field describes (an attention sink per head, a router bias, a vision tower ...).
struct ExtraParameters {
  enum class Per { model, layer, expert_layer };
  std::string name;
  Per per = Per::model;
  Elements elements = 0;  // each time
  bool active =
      true;  // false: not used by a token (a multi-token-prediction layer left out of the active count)
};

// What somebody published about the parameter count, to show beside our own.
struct PublishedCount {
  Elements parameters = 0;
  bool exact = false;       // false: a rounded label such as 13B
  std::string explanation;  // of a difference
  std::string source;
};

struct Model {
  std::string name;
  std::string family;
  std::string huggingface_id;
  std::string description_source;  // file or argument it was read from

  Architecture architecture = Architecture::decoder;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t encoder_layers = 0;  // encoder-decoder only
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // = heads without grouped-query attention
  std::int64_t head_dim = 0;
  std::int64_t ffn = 0;  // 0 where every layer is an expert layer
  bool gated_ffn = false;
  Activation activation = Activation::gelu_tanh;
  std::int64_t vocabulary = 0;
  std::int64_t max_sequence = 0;  // 0: not stated
  Position position = Position::learned;
  // Rows of the learned position table, or buckets of a relative-bias table (T5: 32, one table per stack). 0
  // with learned positions: left open by a spelling, then the table has as many rows as the plan's sequence
  // is long.
  std::int64_t position_rows = 0;
  std::int64_t embedding_width = 0;  // 0: = hidden; else projections in and out (OPT-350M)
  bool tied_embeddings = true;
  bool head_bias = false;  // of the output head (Phi-2, GPT-J)
  // Rows of an output head that is no language model's: labels of a classifier, 1 of a reward model. 0: the
  // vocabulary. Such a head is never tied.
  std::int64_t head_outputs = 0;
  Bias biases = Bias::all;
  Norm norm = Norm::layer_norm;
  bool norm_bias = true;             // false: a LayerNorm with a weight only (MPT); an RMSNorm never has one
  std::int64_t norms_per_layer = 2;  // 1, 2, or 4 (Gemma 2 and 3: also after attention and MLP); the decoder
                                     // of an encoder-decoder has one more, before its cross attention
  bool final_norm = true;
  bool parallel_block = false;  // attention and MLP from the same input (GPT-NeoX, Falcon, Phi)
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;

  // How the model computes; no parameter count depends on these.
  NormPlacement norm_placement = NormPlacement::before;
  double norm_epsilon = 1e-5;
  bool norm_weight_offset = false;  // a norm multiplies with 1 + its weight (Gemma)
  bool scaled_embeddings = false;   // a token's row is multiplied by sqrt(hidden) (Gemma)
  double attention_scale_dim = 0;   // scores are divided by its square root; 0: head_dim
  double attention_soft_cap = 0;    // a score x becomes cap tanh(x / cap) (Gemma 2); 0: none
  double logits_soft_cap = 0;       // the same of the logits
  double rotary_fraction = 1;       // of a head's elements, the first so many are turned (GPT-NeoX, Phi)
  program::RotaryFrequencies rotary;
  std::optional<program::RotaryFrequencies> window_rotary;  // of windowed layers; else as the others
  bool rotary_in_windows_only = false;                      // the other layers have no positions (Llama 4)
  std::string rotary_scaling;  // a scaling that `rotary` does not have (yarn), by its name; empty: none
  program::AttentionWindow window;

  std::optional<MixtureOfExperts> experts;
  std::optional<LatentAttention> latent;
  std::vector<ExtraParameters> extra;
  std::optional<PublishedCount> published;
  std::vector<std::string>
      notes;  // what the file holds that this description leaves out, to be shown to the user
  std::vector<LeftOut> left_out;

  // Set when only a parameter count is known (`params=7.5B`): states and traffic can be answered, activations
  // not.
  Elements only_parameters = 0;
  Elements only_largest_layer = 0;  // largest layer's parameters, when the user gives it

  bool is_shape() const { return only_parameters == 0; }
  std::int64_t output_rows() const { return head_outputs > 0 ? head_outputs : vocabulary; }
};

// How a parameter tensor is divided over tensor-parallel ranks.
enum class Sharding : std::uint8_t {
  replicated,
  column,      // output dimension: heads or MLP width, also its bias
  row,         // input dimension
  vocabulary,  // rows of the (padded) vocabulary
  key_value,   // output dimension by key-value heads; replicated where tp is larger than their number
};

// One parameter tensor of a layer: shape {outputs, inputs}; vectors have inputs = 1.
struct ParameterTensor {
  std::string_view name;  // static ("attention.query.weight"); an extra's name is a view into the Model
  Elements outputs = 0;
  Elements inputs = 1;
  std::int64_t copies = 1;  // experts: so many of this tensor
  Sharding sharding = Sharding::replicated;
  bool expert = false;  // routed expert: in the total, used by some tokens only

  Elements elements() const { return outputs * inputs * copies; }
};

// A run of alike layers, or the embedding, or the head.
struct ParameterGroup {
  enum class Kind : std::uint8_t {
    embedding,
    dense_layer,
    expert_layer,
    encoder_layer,
    decoder_layer,
    head,
    extra
  };
  Kind kind = Kind::dense_layer;
  std::int64_t layers = 1;  // how many alike
  std::vector<ParameterTensor> tensors;

  Elements elements_per_layer() const;
};

// Every parameter of the model in the order of the forward pass: embedding, layers (encoder, decoder; dense,
// then expert layers), head (final norms and the untied head), extra. Tied embeddings are counted once, in
// the embedding group. The relative-bias tables of T5 are in the embedding group and its encoder's final norm
// in the head group. `sequence`: the plan's sequence length, for a learned position table whose rows are left
// open; 0 leaves the table out. Sources: docs/equations.md, "Parameters". Requires is_shape(). The result's
// names may refer into `model`.
std::vector<ParameterGroup> parameter_groups(const Model& model, std::int64_t sequence = 0);

// Total parameters; the user's own count for `params=`. `active`: experts that a token does not use left out.
Elements count_parameters(const Model& model, std::int64_t sequence = 0);
Elements count_active_parameters(const Model& model, std::int64_t sequence = 0);

// ---- reading ----

// A model description in our own YAML (models/*.yaml; docs/models.md). Throws ConfigurationError.
Model read_model_yaml(const Document& document);

// The config.json of a Hugging Face model. Throws ConfigurationError; families that are not modelled are
// refused by name.
Model read_huggingface_config(const Document& document);

// `params=7.5B[,largest_layer=32M]`, or a shape: `layers=48,hidden=1600,heads=25,vocab=50257` with optional
// ffn, kv_heads, head_dim, gated and tied (`vocabulary` is another name of vocab). The block is GPT-2's:
// LayerNorm, GELU, biases, ffn of 4 hidden, tied head, learned positions with as many rows as the plan's
// sequence (position_rows = 0). `gated=true` makes it Llama's: RMSNorm, SiLU, rotary positions, no biases,
// untied head; ffn must then be given, because a gated MLP has no usual width. Throws ConfigurationError.
Model read_model_spelling(std::string_view text);

// The MODEL argument of every command: a preset's name, a config.json or a folder with one, a YAML file, or a
// spelling. An unknown name is a ConfigurationError with the nearest preset.
Model resolve_model(const std::string& argument);

// Names of the presets, sorted.
std::vector<std::string> preset_model_names();

}  // namespace zeroplan::describe
