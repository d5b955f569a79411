#include "planner/instructions/model_constants.hpp"

#include <bit>
#include <cmath>
#include <numbers>

namespace zeroplan::program {

double AttentionWindow::visible_share(std::int64_t sequence) const {
  if (kind == Kind::none || sequence <= size) return 1;
  const auto s = static_cast<double>(sequence);
  const auto w = static_cast<double>(size);
  const double causal = s * (s + 1) / 2;
  if (kind == Kind::sliding) return (w * (w + 1) / 2 + (s - w) * w) / causal;
  const std::int64_t chunks = sequence / size;
  const auto rest = static_cast<double>(sequence % size);
  return (static_cast<double>(chunks) * w * (w + 1) / 2 + rest * (rest + 1) / 2) / causal;
}

double AttentionWindow::windowed_share(std::int64_t layers) const {
  if (kind == Kind::none || layers == 0) return 0;
  const auto full = std::lower_bound(full_layers.begin(), full_layers.end(), layers) - full_layers.begin();
  return static_cast<double>(layers - full) / static_cast<double>(layers);
}

double AttentionWindow::mean_visible_share(std::int64_t layers, std::int64_t sequence) const {
  const double windowed = windowed_share(layers);
  return 1 - windowed + windowed * visible_share(sequence);
}

double RotaryFrequencies::at(std::int64_t pair, std::int64_t dims) const {
  const double frequency = std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(dims));
  if (scaling == Scaling::none) return frequency;
  if (scaling == Scaling::linear) return frequency / factor;
  // Turns within the original sequence.
  const double turns = static_cast<double>(original_sequence) * frequency / (2 * std::numbers::pi);
  if (turns < low_frequency) return frequency / factor;
  if (turns > high_frequency) return frequency;
  const double kept = (turns - low_frequency) / (high_frequency - low_frequency);
  return (1 - kept) * frequency / factor + kept * frequency;
}

// Slopes 2^(-8 k / n) for k = 1 ... n where n is a power of two; further heads take every second slope of
// twice as many.
double ModelConstants::alibi_slope(std::int64_t local_head) const {
  const std::int64_t head = first_head + local_head;
  const auto base = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(alibi_heads)));
  const auto n = static_cast<double>(base);
  if (head < base) return std::exp2(-8.0 * static_cast<double>(head + 1) / n);
  return std::exp2(-8.0 * static_cast<double>(2 * (head - base) + 1) / (2 * n));
}

}  // namespace zeroplan::program
