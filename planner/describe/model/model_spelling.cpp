#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "planner/describe/model/check_model.hpp"
#include "planner/describe/model/model.hpp"
#include "planner/describe/text/quantity.hpp"

namespace zeroplan::describe {

namespace {

const std::vector<std::string> kKeys = {"layers", "hidden",   "heads",         "vocab",
                                        "ffn",    "kv_heads", "head_dim",      "gated",
                                        "tied",   "params",   "largest_layer", "vocabulary"};

struct Item {
  std::string_view key;
  std::string_view value;
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// The items of key=value,key=value with every slip entered as a problem.
class Spelling {
 public:
  Spelling(std::string_view text, Problems& problems) : source_(text.substr(0, 120)), problems_(problems) {
    for (;;) {
      const std::size_t comma = std::min(text.find(','), text.size());
      add(trimmed(text.substr(0, comma)));
      if (comma == text.size()) break;
      text.remove_prefix(comma + 1);
    }
  }

  const Item* find(std::string_view key) const {
    const auto found =
        std::find_if(items_.begin(), items_.end(), [&](const Item& item) { return item.key == key; });
    return found == items_.end() ? nullptr : &*found;
  }

  // parse(value), or `fallback` where the key is absent or its value wrong.
  template <class Result, class Parse>
  Result read(std::string_view key, Result fallback, Parse parse) {
    const Item* item = find(key);
    if (item == nullptr) return fallback;
    try {
      return parse(item->value);
    } catch (const std::invalid_argument& error) {
      problem(key, error.what());
      return fallback;
    }
  }

  std::int64_t integer(std::string_view key, std::int64_t fallback, std::int64_t maximum) {
    return read(key, fallback, [&](std::string_view value) { return parse_integer(value, 1, maximum); });
  }

  std::int64_t required(std::string_view key, std::int64_t maximum, std::string_view meaning) {
    if (find(key) == nullptr) problem(key, fmt::format("missing, expected {}", meaning));
    return integer(key, 0, maximum);
  }

  void problem(std::string_view key, std::string message) {
    problems_.add({source_, 0, std::string(key), std::move(message)});
  }

  const std::vector<Item>& items() const { return items_; }

 private:
  void add(std::string_view text) {
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) {
      problem("", fmt::format("found {}, expected key=value", quoted(text)));
      return;
    }
    std::string_view key = trimmed(text.substr(0, equals));
    if (key == "vocabulary") key = "vocab";
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
      const std::string nearest = nearest_name(key, kKeys);
      problem(key, nearest.empty()
                       ? "unknown key; known: layers hidden heads vocab ffn kv_heads head_dim gated tied, or "
                         "params largest_layer"
                       : "unknown key; nearest: " + nearest);
      return;
    }
    if (find(key) != nullptr) {
      problem(key, "given twice");
      return;
    }
    items_.push_back({key, trimmed(text.substr(equals + 1))});
  }

  std::string source_;
  std::vector<Item> items_;
  Problems& problems_;
};

Model read_count(Spelling& spelling) {
  Model model;
  model.family = "parameter count";
  const auto parse = [](std::string_view value) { return parse_count(value, 1, kMaxParameters); };
  model.only_parameters = spelling.read("params", Elements{0}, parse);
  model.only_largest_layer = spelling.read("largest_layer", Elements{0}, parse);
  if (model.only_parameters > 0 && model.only_largest_layer > model.only_parameters) {
    spelling.problem("largest_layer", fmt::format("found {}, expected at most params = {}",
                                                  model.only_largest_layer, model.only_parameters));
  }
  for (const Item& item : spelling.items()) {
    if (item.key != "params" && item.key != "largest_layer") {
      spelling.problem(item.key, "not together with params: give a count or a shape");
    }
  }
  return model;
}

Model read_shape(Spelling& spelling) {
  Model model;
  const bool gated = spelling.read("gated", false, parse_boolean);
  model.family = gated ? "Llama-style" : "GPT-style";
  model.layers = spelling.required("layers", kMaxLayers, "the number of layers");
  model.hidden = spelling.required("hidden", kMaxHidden, "the model width");
  model.heads = spelling.required("heads", kMaxHeads, "the number of attention heads");
  model.vocabulary = spelling.required("vocab", kMaxVocabulary, "the rows of the token embedding");
  model.kv_heads = spelling.integer("kv_heads", model.heads, kMaxHeads);
  model.head_dim = spelling.integer("head_dim", 0, kMaxHeadDim);
  if (model.head_dim == 0 && model.heads > 0 && model.hidden % model.heads == 0) {
    model.head_dim = model.hidden / model.heads;
  }
  if (gated) {
    model.ffn = spelling.required("ffn", kMaxFfn, "the MLP width: a gated MLP has no usual one");
    model.gated_ffn = true;
    model.activation = Activation::silu;
    model.position = Position::rotary;
    model.biases = Bias::none;
    model.norm = Norm::rms_norm;
  } else {
    model.ffn = spelling.integer("ffn", 4 * model.hidden, kMaxFfn);
  }
  model.tied_embeddings = spelling.read("tied", !gated, parse_boolean);
  if (spelling.find("largest_layer") != nullptr) {
    spelling.problem("largest_layer", "only together with params: a shape has its own");
  }
  return model;
}

}  // namespace

Model read_model_spelling(std::string_view text) {
  Problems problems;
  Spelling spelling(text, problems);
  const bool is_count = spelling.find("params") != nullptr;
  Model model = is_count ? read_count(spelling) : read_shape(spelling);
  if (problems.empty() && !is_count) {
    for (const BrokenRule& rule : check_model(model)) spelling.problem(rule.key, rule.message);
  }
  problems.throw_if_any();
  model.name = std::string(text);
  model.description_source = "spelled on the command line";
  return model;
}

}  // namespace zeroplan::describe
