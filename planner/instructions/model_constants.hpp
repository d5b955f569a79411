#pragma once

#include <cstdint>

#include "planner/instructions/attention_window.hpp"

namespace zeroplan::program {

// Rotary positions (arXiv 2104.09864): pair i of d / 2 turns by base^(-2 i / d) a position, or by what a
// scaling to longer sequences makes of it.
struct RotaryFrequencies {
  // linear: divided by `factor` (arXiv 2306.15595). llama3: so are turns longer than original_sequence /
  // low_frequency; turns shorter than original_sequence / high_frequency stay; between the two it is a blend.
  enum class Scaling : std::uint8_t { none, linear, llama3 };
  double base = 10000;
  Scaling scaling = Scaling::none;
  double factor = 1;
  double low_frequency = 1, high_frequency = 4;
  std::int64_t original_sequence = 0;

  // Radians a position of pair `pair` where `dims` elements of a head are turned.
  double at(std::int64_t pair, std::int64_t dims) const;

  bool operator==(const RotaryFrequencies&) const = default;
};

// Numbers of the model that kernels need beside their operands, the same in every layer unless it says
// otherwise. They are part of the program: a device is given them with each step.
struct ModelConstants {
  double norm_epsilon = 1e-5;
  double norm_weight_offset = 0;  // a norm multiplies with this + its weight (Gemma: 1)
  double embedding_scale = 1;     // of the token's row

  std::int64_t rotary_dims = 0;  // so many of a head's elements are turned, the first; 0: all
  RotaryFrequencies rotary;
  RotaryFrequencies window_rotary;      // in windowed layers
  bool rotary_in_windows_only = false;  // other layers have no positions (Llama 4)

  double attention_scale = 0;     // scores are multiplied with it; 0: 1 / sqrt(head_dim)
  double attention_soft_cap = 0;  // a score x becomes cap tanh(x / cap); 0: none
  double logits_soft_cap = 0;     // the same of the logits
  AttentionWindow window;

  // ALiBi (arXiv 2108.12409): head h adds -slope(h) x distance to its scores. 0 heads: none.
  std::int64_t alibi_heads = 0;  // of the whole model
  std::int64_t first_head = 0;   // of this tensor-parallel rank
  double alibi_slope(std::int64_t local_head) const;

  const RotaryFrequencies& rotary_of(std::int64_t layer) const {
    return window.is_windowed(layer) ? window_rotary : rotary;
  }
  bool turns(std::int64_t layer) const { return !rotary_in_windows_only || window.is_windowed(layer); }
};

}  // namespace zeroplan::program
