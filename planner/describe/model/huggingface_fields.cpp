#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "planner/describe/model/check_model.hpp"
#include "planner/describe/model/huggingface_families.hpp"

namespace zeroplan::describe {

namespace {

// The value of the first of several names of one size, 0 where it is wrong. A second name must say the same.
std::optional<std::int64_t> first_size(MapReader& config, std::initializer_list<std::string_view> keys,
                                       std::int64_t maximum) {
  std::optional<std::int64_t> first;
  std::string_view first_key;
  for (const std::string_view key : keys) {
    if (!config.has(key)) continue;
    const std::int64_t size = config.integer(key, 1, maximum).value_or(0);
    if (!first) {
      first = size;
      first_key = key;
    } else if (size != *first && size > 0 && *first > 0) {
      config.problem(key, fmt::format("found {} beside {} {}, expected one of them: they name one size", size,
                                      first_key, *first));
    }
  }
  return first;
}

struct NamedActivation {
  std::string_view name;
  Activation activation;
};

// transformers' activations.py: which of its names are the exact GELU, and which its tanh form.
constexpr NamedActivation kActivations[] = {
    {"gelu", Activation::gelu},
    {"gelu_python", Activation::gelu},
    {"gelu_new", Activation::gelu_tanh},
    {"gelu_fast", Activation::gelu_tanh},
    {"gelu_accurate", Activation::gelu_tanh},
    {"gelu_pytorch_tanh", Activation::gelu_tanh},
    {"gelu_python_tanh", Activation::gelu_tanh},
    {"silu", Activation::silu},
    {"swish", Activation::silu},
    {"relu", Activation::relu},
};

}  // namespace

std::int64_t required_size(MapReader& config, std::initializer_list<std::string_view> keys,
                           std::int64_t maximum) {
  if (const auto size = first_size(config, keys, maximum)) return *size;
  config.missing(*keys.begin(), "a whole number");
  return 0;
}

std::int64_t size_or(MapReader& config, std::initializer_list<std::string_view> keys, std::int64_t fallback,
                     std::int64_t maximum) {
  return first_size(config, keys, maximum).value_or(fallback);
}

std::int64_t size_or(MapReader& config, std::string_view key, std::int64_t fallback, std::int64_t maximum) {
  if (!config.has(key)) return fallback;
  return config.integer(key, 1, maximum).value_or(0);
}

bool flag_or(MapReader& config, std::string_view key, bool fallback) {
  return config.boolean(key).value_or(fallback);
}

bool is_null(MapReader& config, std::string_view key) {
  const Value* value = config.any(key);
  return value != nullptr && value->kind == Value::Kind::null;
}

void read_activation(MapReader& config, std::string_view key, std::string_view fallback, Model& model) {
  const std::string name = config.string(key).value_or(std::string(fallback));
  const auto* found = std::find_if(std::begin(kActivations), std::end(kActivations),
                                   [&](const NamedActivation& known) { return known.name == name; });
  if (found == std::end(kActivations)) {
    config.problem(key, "found " + quoted(name) +
                            ", expected gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, silu or relu");
    return;
  }
  model.activation = found->activation;
}

void read_sizes(MapReader& config, Model& model) {
  model.hidden = required_size(config, {"hidden_size"}, kMaxHidden);
  model.layers = required_size(config, {"num_hidden_layers"}, kMaxLayers);
  model.heads = required_size(config, {"num_attention_heads"}, kMaxHeads);
  model.vocabulary = required_size(config, {"vocab_size"}, kMaxVocabulary);
  model.max_sequence = size_or(config, "max_position_embeddings", 0, kMaxSequence);
}

void read_head_dim(MapReader& config, Model& model) {
  model.head_dim = size_or(config, "head_dim", 0, kMaxHeadDim);
  if (model.head_dim == 0 && model.heads > 0 && model.hidden % model.heads == 0) {
    model.head_dim = model.hidden / model.heads;
  }
}

void ignore_unused_windows(MapReader& config) {
  const Value* use = config.value() == nullptr ? nullptr : config.value()->find("use_sliding_window");
  if (use != nullptr && !is_neutral(*use, "")) return;
  config.ignore("sliding_window");
  config.ignore("max_window_layers");
}

void read_kv_heads(MapReader& config, Model& model, std::int64_t fallback) {
  if (fallback == 0 || is_null(config, "num_key_value_heads")) fallback = model.heads;
  model.kv_heads = size_or(config, "num_key_value_heads", fallback, kMaxHeads);
}

void read_tied(MapReader& config, Model& model, bool fallback) {
  model.tied_embeddings = flag_or(config, "tie_word_embeddings", fallback);
}

void add_extra(Model& model, std::string_view name, ExtraParameters::Per per, Elements elements) {
  model.extra.push_back({.name = std::string(name), .per = per, .elements = elements});
}

}  // namespace zeroplan::describe
