#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "planner/describe/model/check_model.hpp"
#include "planner/describe/model/model.hpp"
#include "planner/describe/text/quantity.hpp"

// Reads models/*.yaml and files of the same form (docs/models.md).
namespace zeroplan::describe {

namespace {

constexpr std::string_view kSchema = "zeroplan.model/1";

std::int64_t required(MapReader& map, std::string_view key, std::int64_t minimum, std::int64_t maximum,
                      std::string_view meaning) {
  map.missing(key, meaning);
  return map.integer(key, minimum, maximum).value_or(0);
}

// The enumerator whose place in `names` the value has.
template <class Enumeration>
Enumeration choice(MapReader& map, std::string_view key, const std::vector<std::string>& names,
                   Enumeration fallback) {
  const auto index = map.one_of(key, names);
  return index ? static_cast<Enumeration>(*index) : fallback;
}

template <class Enumeration>
Enumeration required_choice(MapReader& map, std::string_view key, const std::vector<std::string>& names) {
  map.missing(key, fmt::format("one of {}", fmt::join(names, ", ")));
  return choice(map, key, names, Enumeration{});
}

bool required_boolean(MapReader& map, std::string_view key) {
  map.missing(key, "true or false");
  return map.boolean(key).value_or(false);
}

MixtureOfExperts read_experts(MapReader map) {
  MixtureOfExperts experts;
  experts.experts = required(map, "experts", 1, kMaxExperts, "the number of routed experts of a layer");
  experts.top_k = required(map, "top_k", 1, kMaxExperts, "how many experts a token uses");
  experts.expert_ffn = required(map, "expert_ffn", 1, kMaxFfn, "the MLP width of one expert");
  experts.shared_ffn = map.integer("shared_ffn", 0, kMaxFfn).value_or(0);
  experts.layers = required(map, "layers", 1, kMaxLayers, "how many layers have experts");
  experts.biases = map.boolean("biases").value_or(false);
  map.finish();
  return experts;
}

LatentAttention read_latent(MapReader map) {
  LatentAttention latent;
  latent.q_lora =
      required(map, "q_lora", 0, kMaxHidden, "the rank of the queries, 0 for a direct projection");
  latent.kv_lora = required(map, "kv_lora", 1, kMaxHidden, "the rank of keys and values");
  latent.qk_nope_dim = required(map, "qk_nope_dim", 1, kMaxHeadDim, "width per head without position");
  latent.qk_rope_dim = required(map, "qk_rope_dim", 1, kMaxHeadDim, "width per head with rotary position");
  latent.v_dim = required(map, "v_dim", 1, kMaxHeadDim, "width of a value head");
  map.finish();
  return latent;
}

// The line of a dotted key, or of the deepest part of it that is there.
int line_of(const Value& root, std::string_view dotted) {
  const Value* value = &root;
  while (!dotted.empty()) {
    const std::size_t dot = std::min(dotted.find('.'), dotted.size());
    const Value* next = value->find(dotted.substr(0, dot));
    if (next == nullptr) break;
    value = next;
    dotted.remove_prefix(std::min(dot + 1, dotted.size()));
  }
  return value->line;
}

// What the description leaves out, to be shown with every answer.
void read_notes(MapReader& map, Model& model) {
  const Value* notes = map.list("notes");
  if (notes == nullptr) return;
  for (const Value& note : notes->items) {
    if (note.kind != Value::Kind::scalar) return map.problem("notes", "expected a list of texts");
    model.notes.push_back(note.text);
  }
}

program::RotaryFrequencies read_scaling(MapReader map, program::RotaryFrequencies frequencies) {
  using Scaling = program::RotaryFrequencies::Scaling;
  frequencies.scaling = required_choice<Scaling>(map, "type", {"none", "linear", "llama3"});
  map.missing("factor", "how many times longer sequences become");
  frequencies.factor = map.real("factor", 1, kMaxRotaryFactor).value_or(1);
  if (frequencies.scaling == Scaling::llama3) {
    frequencies.low_frequency = map.real("low_frequency", kLeastPositive, kMaxRotaryFactor).value_or(1);
    frequencies.high_frequency = map.real("high_frequency", kLeastPositive, kMaxRotaryFactor).value_or(4);
    frequencies.original_sequence =
        required(map, "original_sequence", 1, kMaxSequence, "the sequence before it was scaled");
    if (frequencies.high_frequency <= frequencies.low_frequency) {
      map.problem("high_frequency", "expected more than low_frequency");
    }
  }
  map.finish();
  return frequencies;
}

void read_rotary(MapReader map, Model& model) {
  model.rotary.base = map.real("base", 1, kMaxRotaryBase).value_or(model.rotary.base);
  model.rotary_fraction = map.real("fraction", kLeastPositive, 1).value_or(1);
  if (const auto base = map.real("window_base", 1, kMaxRotaryBase)) {
    model.window_rotary = program::RotaryFrequencies{.base = *base};
  }
  model.rotary_in_windows_only = map.boolean("windows_only").value_or(false);
  if (const Value* scaling = map.any("scaling"); scaling != nullptr) {
    if (scaling->kind == Value::Kind::map) {
      model.rotary =
          read_scaling({*scaling, map.source(), map.dotted("scaling"), map.problems()}, model.rotary);
    } else {
      model.rotary_scaling = map.string("scaling").value_or("");  // known by its name alone
    }
  }
  map.finish();
}

program::AttentionWindow read_window(MapReader map, std::int64_t layers) {
  program::AttentionWindow window;
  window.kind = static_cast<program::AttentionWindow::Kind>(
      required_choice<int>(map, "kind", {"sliding", "chunked"}) + 1);
  window.size = required(map, "size", 1, kMaxSequence, "how many positions a query sees");
  const std::int64_t every = map.integer("full_every", 1, kMaxLayers).value_or(0);
  if (const Value* list = map.list("full_layers")) {
    for (const Value& item : list->items) {
      try {
        window.full_layers.push_back(
            static_cast<std::int32_t>(parse_integer(item.text, 0, std::max<std::int64_t>(0, layers - 1))));
      } catch (const std::invalid_argument& error) {
        map.problem("full_layers", error.what());
        break;
      }
    }
    if (every > 0) map.problem("full_layers", "expected either full_every or full_layers");
    if (!std::is_sorted(window.full_layers.begin(), window.full_layers.end(), std::less_equal<>{})) {
      map.problem("full_layers", "expected layer numbers that rise");
    }
  }
  if (every > 0) window.full_layers = every_layer(every, layers);
  map.finish();
  return window;
}

std::vector<ExtraParameters> read_extra(MapReader& parent, const Value& list) {
  std::vector<ExtraParameters> all;
  if (list.items.size() > kMaxExtra) {
    parent.problem("extra", "found " + std::to_string(list.items.size()) + " entries, expected at most " +
                                std::to_string(kMaxExtra));
    return all;
  }
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    MapReader map(list.items[i], parent.source(), parent.dotted("extra[" + std::to_string(i) + "]"),
                  parent.problems());
    ExtraParameters extra;
    map.missing("name", "what these parameters are");
    extra.name = map.string("name").value_or("");
    extra.per = required_choice<ExtraParameters::Per>(map, "per", {"model", "layer", "expert_layer"});
    map.missing("elements", "how many parameters each time");
    extra.elements = map.count("elements", 1, kMaxParameters).value_or(0);
    extra.active = map.boolean("active").value_or(true);
    map.finish();
    all.push_back(std::move(extra));
  }
  return all;
}

PublishedCount read_published(MapReader map) {
  PublishedCount published;
  map.missing("parameters", "the published count");
  published.parameters = map.count("parameters", 1, kMaxParameters).value_or(0);
  published.exact = required_boolean(map, "exact");
  published.explanation = map.string("explanation").value_or("");
  map.missing("source", "where the count was published");
  published.source = map.string("source").value_or("");
  map.finish();
  return published;
}

void read_identity(MapReader& map, Model& model) {
  map.missing("schema", kSchema);
  if (const auto schema = map.string("schema"); schema && *schema != kSchema) {
    map.problem("schema", "found " + quoted(*schema) + ", expected " + std::string(kSchema));
  }
  map.missing("name", "the model's name");
  model.name = map.string("name").value_or("");
  model.family = map.string("family").value_or("");
  model.huggingface_id = map.string("huggingface_id").value_or("");
  if (const Value* sources = map.list("sources")) {
    const bool all_text = std::all_of(sources->items.begin(), sources->items.end(),
                                      [](const Value& item) { return item.kind == Value::Kind::scalar; });
    if (!all_text) map.problem("sources", "expected a list of texts");
  }
}

void read_shape(MapReader& map, Model& model) {
  model.architecture = choice(map, "architecture", {"decoder", "encoder_decoder"}, Architecture::decoder);
  model.hidden = required(map, "hidden", 1, kMaxHidden, "the model width");
  model.layers = required(map, "layers", 1, kMaxLayers, "the number of layers");
  if (model.architecture == Architecture::encoder_decoder) {
    model.encoder_layers = required(map, "encoder_layers", 1, kMaxLayers, "the layers of the encoder");
  } else {
    model.encoder_layers = map.integer("encoder_layers", 0, kMaxLayers).value_or(0);
  }
  model.heads = required(map, "heads", 1, kMaxHeads, "the number of attention heads");
  model.kv_heads = map.integer("kv_heads", 1, kMaxHeads).value_or(model.heads);
  model.head_dim = map.integer("head_dim", 1, kMaxHeadDim).value_or(0);
  if (const Value* latent = map.map("latent_attention")) {
    model.latent = read_latent({*latent, map.source(), map.dotted("latent_attention"), map.problems()});
    if (model.head_dim == 0) model.head_dim = model.latent->qk_nope_dim + model.latent->qk_rope_dim;
  }
  if (model.head_dim == 0 && model.heads > 0 && model.hidden % model.heads == 0) {
    model.head_dim = model.hidden / model.heads;
  }
  if (const Value* experts = map.map("mixture_of_experts")) {
    model.experts = read_experts({*experts, map.source(), map.dotted("mixture_of_experts"), map.problems()});
  }
  const bool every_layer_has_experts = model.experts && model.experts->layers == model.layers;
  if (!every_layer_has_experts) {
    model.ffn = required(map, "ffn", 1, kMaxFfn, "the MLP width");
  } else if (map.has("ffn")) {
    map.integer("ffn", 1, kMaxFfn);
    map.problem("ffn", "every layer has experts, so no MLP has this width; expert_ffn is theirs");
  }
  model.gated_ffn = required_boolean(map, "gated_ffn");
  model.activation = required_choice<Activation>(map, "activation", {"gelu", "gelu_tanh", "silu", "relu"});
  model.vocabulary = required(map, "vocabulary", 1, kMaxVocabulary, "the rows of the token embedding");
  model.embedding_width = map.integer("embedding_width", 1, kMaxHidden).value_or(0);
  model.tied_embeddings = required_boolean(map, "tied_embeddings");
  model.head_bias = map.boolean("head_bias").value_or(false);
  model.head_outputs = map.integer("head_outputs", 1, kMaxVocabulary).value_or(0);
}

void read_position_and_norm(MapReader& map, Model& model) {
  model.max_sequence = map.integer("max_sequence", 1, kMaxSequence).value_or(0);
  model.position =
      required_choice<Position>(map, "position", {"learned", "rotary", "alibi", "relative_bias", "none"});
  model.position_rows = map.integer("position_rows", 1, kMaxPositionRows).value_or(0);
  if (model.position == Position::learned && model.position_rows == 0) {
    model.position_rows = std::min(model.max_sequence, kMaxPositionRows);
    if (model.position_rows == 0 && !map.has("max_sequence")) {
      map.missing("position_rows", "the rows of the learned position table, or max_sequence");
    }
  }
  if (model.position == Position::relative_bias && !map.has("position_rows")) {
    map.missing("position_rows", "the buckets of the relative-bias table");
  }
  model.norm = required_choice<Norm>(map, "norm", {"layer_norm", "rms_norm"});
  model.norm_bias = map.boolean("norm_bias").value_or(true);
  model.norms_per_layer = map.integer("norms_per_layer", 1, 4).value_or(2);
  model.final_norm = map.boolean("final_norm").value_or(true);
  model.query_key_norm = choice(map, "query_key_norm", {"none", "head", "full"}, QueryKeyNorm::none);
  model.biases = required_choice<Bias>(map, "biases", {"none", "qkv", "qkvo", "all"});
  model.parallel_block = map.boolean("parallel_block").value_or(false);
}

void read_computation(MapReader& map, Model& model) {
  model.norm_placement = choice(map, "norm_placement", {"before", "branch", "after"}, NormPlacement::before);
  model.norm_epsilon = map.real("norm_epsilon", 0, 1).value_or(model.norm_epsilon);
  model.norm_weight_offset = map.boolean("norm_weight_offset").value_or(false);
  model.scaled_embeddings = map.boolean("scaled_embeddings").value_or(false);
  model.attention_scale_dim = map.real("attention_scale_dim", kLeastPositive, kMaxHidden).value_or(0);
  model.attention_soft_cap = map.real("attention_soft_cap", kLeastPositive, kMaxSoftCap).value_or(0);
  model.logits_soft_cap = map.real("logits_soft_cap", kLeastPositive, kMaxSoftCap).value_or(0);
  if (const Value* rotary = map.map("rotary")) {
    read_rotary({*rotary, map.source(), map.dotted("rotary"), map.problems()}, model);
  }
  if (const Value* window = map.map("attention_window")) {
    model.window =
        read_window({*window, map.source(), map.dotted("attention_window"), map.problems()}, model.layers);
  }
}

}  // namespace

Model read_model_yaml(const Document& document) {
  Problems problems;
  MapReader map(document.root, document.source, "", problems);
  Model model;
  model.description_source = document.source;
  read_identity(map, model);
  read_shape(map, model);
  read_position_and_norm(map, model);
  read_notes(map, model);
  read_computation(map, model);
  if (const Value* extra = map.list("extra")) model.extra = read_extra(map, *extra);
  if (const Value* published = map.map("published")) {
    model.published = read_published({*published, map.source(), map.dotted("published"), problems});
  }
  map.finish();
  for (const BrokenRule& rule : check_model(model)) {
    problems.add({document.source, line_of(document.root, rule.key), rule.key, rule.message});
  }
  problems.throw_if_any();
  return model;
}

}  // namespace zeroplan::describe
