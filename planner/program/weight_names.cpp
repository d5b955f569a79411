#include "planner/program/weight_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

namespace zeroplan::program {

namespace {

using describe::Model;
using describe::ParameterGroup;
using describe::ParameterTensor;

struct Family {
  std::string_view title;  // Model::family begins with it
  bool is_gpt2;
};
constexpr std::array<Family, 8> kFamilies{{{"GPT-2", true},
                                           {"GPT-3", true},
                                           {"GPT-style", true},
                                           {"Llama", false},
                                           {"TinyLlama", false},
                                           {"SmolLM2", false},
                                           {"Mistral", false},
                                           {"Qwen2", false}}};

const Family* family_of(const Model& model) {
  const auto found = std::find_if(kFamilies.begin(), kFamilies.end(), [&](const Family& family) {
    return model.family.starts_with(family.title);
  });
  return found == kFamilies.end() ? nullptr : &*found;
}

bool is_plain(const Model& model) {
  return model.is_shape() && model.architecture == describe::Architecture::decoder && !model.experts &&
         !model.latent && model.extra.empty() && model.embedding_width == 0 && !model.head_bias &&
         model.norms_per_layer == 2 && model.final_norm && !model.parallel_block &&
         model.query_key_norm == describe::QueryKeyNorm::none;
}

bool is_gpt2(const Model& model) {
  return model.position == describe::Position::learned && model.norm == describe::Norm::layer_norm &&
         model.norm_bias && model.biases == describe::Bias::all && !model.gated_ffn &&
         (model.activation == describe::Activation::gelu_tanh ||
          model.activation == describe::Activation::gelu) &&
         model.kv_heads == model.heads;
}

bool is_llama(const Model& model) {
  return model.position == describe::Position::rotary && model.norm == describe::Norm::rms_norm &&
         model.gated_ffn && model.activation == describe::Activation::silu;
}

// Our name without ".weight" and ".bias": theirs.
struct Name {
  std::string_view name;
  int part = 0, parts = 1;  // of what is stored together
};
const std::map<std::string_view, Name>& gpt2_names() {
  static const std::map<std::string_view, Name> names{{"attention_norm", {"ln_1"}},
                                                      {"attention.query", {"attn.c_attn", 0, 3}},
                                                      {"attention.key", {"attn.c_attn", 1, 3}},
                                                      {"attention.value", {"attn.c_attn", 2, 3}},
                                                      {"attention.output", {"attn.c_proj"}},
                                                      {"mlp_norm", {"ln_2"}},
                                                      {"mlp.up", {"mlp.c_fc"}},
                                                      {"mlp.down", {"mlp.c_proj"}}};
  return names;
}
const std::map<std::string_view, Name>& llama_names() {
  static const std::map<std::string_view, Name> names{{"attention_norm", {"input_layernorm"}},
                                                      {"attention.query", {"self_attn.q_proj"}},
                                                      {"attention.key", {"self_attn.k_proj"}},
                                                      {"attention.value", {"self_attn.v_proj"}},
                                                      {"attention.output", {"self_attn.o_proj"}},
                                                      {"mlp_norm", {"post_attention_layernorm"}},
                                                      {"mlp.gate", {"mlp.gate_proj"}},
                                                      {"mlp.up", {"mlp.up_proj"}},
                                                      {"mlp.down", {"mlp.down_proj"}}};
  return names;
}

// Their name of a tensor outside the layers, behind the prefix; the head's is whole.
std::string_view outside_name(std::string_view own, bool gpt2) {
  if (own == "embedding.token") return gpt2 ? "wte.weight" : "embed_tokens.weight";
  if (own == "embedding.position") return "wpe.weight";
  if (own == "final_norm.weight") return gpt2 ? "ln_f.weight" : "norm.weight";
  if (own == "final_norm.bias") return "ln_f.bias";
  return {};
}

class Namer {
 public:
  Namer(WeightNames& names, bool gpt2) : names_(names), gpt2_(gpt2) {}

  bool add_outside(const ParameterTensor& tensor) {
    const bool is_head = tensor.name == "head.weight";
    const std::string_view name = outside_name(tensor.name, gpt2_);
    if (!is_head && name.empty()) return false;
    add(tensor, 0, is_head ? names_.head : names_.prefix + std::string(name), Name{}, false);
    return true;
  }

  bool add_in_layer(const ParameterTensor& tensor, std::int64_t layer) {
    const std::size_t dot = tensor.name.rfind('.');
    const auto& known = gpt2_ ? gpt2_names() : llama_names();
    const auto found = known.find(tensor.name.substr(0, dot));
    if (found == known.end()) return false;
    const std::string_view kind = tensor.name.substr(dot);  // ".weight", ".bias"
    const std::string name =
        fmt::format("{}{}.{}.{}{}", names_.prefix, gpt2_ ? "h" : "layers", layer, found->second.name, kind);
    add(tensor, layer, name, found->second, gpt2_ && tensor.inputs > 1);
    return true;
  }

 private:
  void add(const ParameterTensor& tensor, std::int64_t layer, std::string name, const Name& place,
           bool transposed) {
    const Elements outputs = tensor.outputs * place.parts;
    NamedWeight weight{
        .name = std::move(name), .shape = {outputs}, .own = std::string(tensor.name), .layer = layer};
    if (tensor.inputs > 1) weight.shape.push_back(tensor.inputs);
    if (transposed) std::swap(weight.shape[0], weight.shape[1]);
    weight.transposed = transposed;
    weight.first_output = tensor.outputs * place.part;
    names_.weights.push_back(std::move(weight));
  }

  WeightNames& names_;
  bool gpt2_;
};

}  // namespace

std::optional<WeightNames> huggingface_names(const Model& model, std::int64_t sequence) {
  const Family* family = family_of(model);
  if (family == nullptr || !is_plain(model) || !(family->is_gpt2 ? is_gpt2(model) : is_llama(model))) {
    return std::nullopt;
  }
  WeightNames names;
  names.prefix = family->is_gpt2 ? "transformer." : "model.";
  names.head = "lm_head.weight";
  if (model.tied_embeddings)
    names.table = names.prefix + std::string(outside_name("embedding.token", family->is_gpt2));
  Namer namer(names, family->is_gpt2);
  std::int64_t layer = 0;
  const std::vector<ParameterGroup> groups = describe::parameter_groups(model, sequence);
  for (const ParameterGroup& group : groups) {
    const bool in_layers = group.kind == ParameterGroup::Kind::dense_layer;
    for (std::int64_t i = 0; i < group.layers; ++i) {
      for (const ParameterTensor& tensor : group.tensors) {
        if (!(in_layers ? namer.add_in_layer(tensor, layer) : namer.add_outside(tensor))) return std::nullopt;
      }
      if (in_layers) ++layer;
    }
  }
  return names;
}

bool is_no_parameter(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with("rotary_emb.inv_freq");
}

}  // namespace zeroplan::program
