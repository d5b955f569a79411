#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace zeroplan::program {

// Which earlier positions a query sees in layers whose attention is narrower than causal:
//
//   sliding   the last `size` positions, its own among them (Longformer, arXiv 2004.05150; Mistral, arXiv 2310.06825)
//   chunked   those of its own chunk of `size` positions (Llama 4)
struct AttentionWindow {
  enum class Kind : std::uint8_t { none, sliding, chunked };
  Kind kind = Kind::none;
  std::int64_t size = 0;
  std::vector<std::int32_t> full_layers;  // sorted: these see every earlier position all the same

  bool is_windowed(std::int64_t layer) const {
    return kind != Kind::none && !std::binary_search(full_layers.begin(), full_layers.end(), layer);
  }

  // The first position that the query at `position` sees in a windowed layer.
  std::int64_t first_seen(std::int64_t position) const { return first_seen_in(kind, size, position); }
  // The same for code that has no more than a kind and a size: kernels of GPUs, which count with int.
  template <class Position>
  static constexpr Position first_seen_in(Kind kind, Position size, Position position) {
    if (kind == Kind::sliding) return position < size ? 0 : position - size + 1;
    if (kind == Kind::chunked) return position / size * size;
    return 0;
  }

  // Of the pairs of a query and a key that causal attention has in one sequence, the part that a windowed
  // layer has.
  double visible_share(std::int64_t sequence) const;

  // Of `layers` layers, the part that is windowed.
  double windowed_share(std::int64_t layers) const;

  // Of the causal pairs in all `layers` layers together, the part that is seen.
  double mean_visible_share(std::int64_t layers, std::int64_t sequence) const;

  bool operator==(const AttentionWindow&) const = default;
};

}  // namespace zeroplan::program
