#include <algorithm>
#include <stdexcept>

#include "planner/describe/model/check_model.hpp"
#include "planner/describe/model/huggingface_families.hpp"
#include "planner/describe/text/quantity.hpp"

// The keys of config.json that say how a model computes and change no parameter count: positions, windows,
// epsilons, caps.
namespace zeroplan::describe {

namespace {

using program::AttentionWindow;
using program::RotaryFrequencies;

double real_or(MapReader& config, std::string_view key, double fallback, double minimum, double maximum) {
  if (!config.has(key)) return fallback;
  return config.real(key, minimum, maximum).value_or(fallback);
}

// rope_scaling: {"rope_type" (older: "type"), "factor", ...}. A kind that is not modelled is kept by its name.
void read_scaling(MapReader map, Model& model) {
  map.allow_unknown();
  std::string type = "default";
  for (const std::string_view key : {"type", "rope_type"}) {
    if (map.has(key)) type = map.string(key).value_or(type);
  }
  RotaryFrequencies& rotary = model.rotary;
  if (type == "default") return;
  if (type == "linear") {
    rotary.scaling = RotaryFrequencies::Scaling::linear;
    rotary.factor = real_or(map, "factor", 1, 1, kMaxRotaryFactor);
  } else if (type == "llama3") {
    rotary.scaling = RotaryFrequencies::Scaling::llama3;
    rotary.factor = real_or(map, "factor", 1, 1, kMaxRotaryFactor);
    rotary.low_frequency = real_or(map, "low_freq_factor", 1, kLeastPositive, kMaxRotaryFactor);
    rotary.high_frequency = real_or(map, "high_freq_factor", 4, kLeastPositive, kMaxRotaryFactor);
    rotary.original_sequence = required_size(map, {"original_max_position_embeddings"}, kMaxSequence);
    if (rotary.high_frequency <= rotary.low_frequency) {
      map.problem("high_freq_factor", "expected more than low_freq_factor");
    }
  } else {
    model.rotary_scaling = type;
  }
}

}  // namespace

void read_rotary(MapReader& config, Model& model, double base, double fraction) {
  const bool older = !config.has("rope_theta") && config.has("rotary_emb_base");
  model.rotary.base = real_or(config, older ? "rotary_emb_base" : "rope_theta", base, 1, kMaxRotaryBase);
  const bool pct = !config.has("partial_rotary_factor") && config.has("rotary_pct");
  model.rotary_fraction =
      real_or(config, pct ? "rotary_pct" : "partial_rotary_factor", fraction, kLeastPositive, 1);
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    const Value* value = config.map(key);
    if (value == nullptr) continue;
    MapReader map(*value, config.source(), config.dotted(key), config.problems());
    map.allow_unknown();
    model.rotary.base = real_or(map, "rope_theta", model.rotary.base, 1, kMaxRotaryBase);
    model.rotary_fraction = real_or(map, "partial_rotary_factor", model.rotary_fraction, kLeastPositive, 1);
    read_scaling({*value, config.source(), config.dotted(key), config.problems()}, model);
  }
}

void read_window_rotary(MapReader& config, Model& model, std::string_view key, double base) {
  if (model.window.kind == AttentionWindow::Kind::none) return;
  model.window_rotary = RotaryFrequencies{};
  model.window_rotary->base = real_or(config, key, base, 1, kMaxRotaryBase);
}

void read_rotary_dims(MapReader& config, Model& model, std::int64_t dims) {
  if (is_null(config, "rotary_dim") || model.head_dim == 0) return;
  const std::int64_t turned = size_or(config, "rotary_dim", std::min(dims, model.head_dim), model.head_dim);
  model.rotary_fraction = static_cast<double>(turned) / static_cast<double>(model.head_dim);
}

void read_norm_epsilon(MapReader& config, Model& model, std::string_view key, double fallback) {
  model.norm_epsilon = real_or(config, key, fallback, 0, 1);
}

void read_window(MapReader& config, Model& model, AttentionWindow::Kind kind, std::string_view key,
                 std::int64_t size, std::int64_t full_every) {
  const std::int64_t seen = is_null(config, key) ? 0 : size_or(config, key, size, kMaxSequence);
  AttentionWindow window;
  window.kind = kind;
  window.size = seen;
  const Value* kinds = config.list("layer_types");
  if (kinds != nullptr) {
    if (static_cast<std::int64_t>(kinds->items.size()) != model.layers) {
      config.problem("layer_types", "expected one kind for each of num_hidden_layers");
    }
    for (std::size_t i = 0; i < kinds->items.size(); ++i) {
      if (kinds->items[i].text == "full_attention") {
        window.full_layers.push_back(static_cast<std::int32_t>(i));
      }
    }
  } else if (full_every > 0) {
    window.full_layers = every_layer(full_every, model.layers);
  }
  const bool any_windowed = static_cast<std::int64_t>(window.full_layers.size()) < model.layers;
  if (seen > 0 && any_windowed) model.window = std::move(window);
}

void read_layers_without_rotary(MapReader& config, Model& model) {
  const Value* rotated = config.list("no_rope_layers");
  if (rotated == nullptr || rotated->items.empty()) return;
  if (static_cast<std::int64_t>(rotated->items.size()) != model.layers) {
    config.problem("no_rope_layers", "expected 0 or 1 for each of num_hidden_layers");
    return;
  }
  if (model.window.kind == AttentionWindow::Kind::none || config.has("layer_types")) return;
  model.window.full_layers.clear();
  for (std::size_t i = 0; i < rotated->items.size(); ++i) {
    if (rotated->items[i].text == "0") model.window.full_layers.push_back(static_cast<std::int32_t>(i));
  }
  if (static_cast<std::int64_t>(model.window.full_layers.size()) == model.layers) model.window = {};
}

void read_late_window(MapReader& config, Model& model, std::int64_t first_layers) {
  if (!flag_or(config, "use_sliding_window", false)) return;
  const std::int64_t first = config.integer("max_window_layers", 0, kMaxLayers).value_or(first_layers);
  const bool listed = config.has("layer_types");
  if (!listed && first >= model.layers) return;  // no layer has a window
  read_window(config, model, AttentionWindow::Kind::sliding, "sliding_window", 4096, 0);
  if (listed || model.window.kind == AttentionWindow::Kind::none) return;
  for (std::int64_t layer = 0; layer < first; ++layer) {
    model.window.full_layers.push_back(static_cast<std::int32_t>(layer));
  }
}

void read_local_layers(MapReader& config, Model& model) {
  std::vector<std::int32_t> full;
  std::int64_t layer = 0;
  if (const Value* groups = config.list("attention_types")) {
    for (const Value& group : groups->items) {
      const bool is_pair = group.items.size() == 2 && group.items[0].kind == Value::Kind::list;
      std::int64_t times = 0;
      try {
        if (is_pair) times = parse_integer(group.items[1].text, 0, kMaxLayers);
      } catch (const std::invalid_argument&) {
        times = 0;
      }
      if (times == 0 || times * static_cast<std::int64_t>(group.items[0].items.size()) > kMaxLayers) {
        config.problem("attention_types", "expected pairs of a list of global and local, and how often");
        return;
      }
      for (std::int64_t i = 0; i < times; ++i) {
        for (const Value& kind : group.items[0].items) {
          if (kind.text == "global") full.push_back(static_cast<std::int32_t>(layer));
          ++layer;
        }
      }
    }
    if (layer != model.layers) {
      config.problem("attention_types", "expected one kind for each of num_layers");
      return;
    }
  } else {
    for (; layer < model.layers; layer += 2) full.push_back(static_cast<std::int32_t>(layer));
  }
  const std::int64_t size = size_or(config, "window_size", 256, kMaxSequence);
  if (static_cast<std::int64_t>(full.size()) == model.layers) return;
  model.window.kind = AttentionWindow::Kind::sliding;
  model.window.size = size;
  model.window.full_layers = std::move(full);
}

void read_soft_cap(MapReader& config, std::string_view key, double fallback, double& cap) {
  cap = is_null(config, key) ? 0 : real_or(config, key, fallback, kLeastPositive, kMaxSoftCap);
}

void read_attention_scale_dim(MapReader& config, std::string_view key, double fallback, Model& model) {
  const double dim = real_or(config, key, fallback, kLeastPositive, kMaxHidden);
  if (dim != static_cast<double>(model.head_dim)) model.attention_scale_dim = dim;
}

}  // namespace zeroplan::describe
