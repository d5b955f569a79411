#pragma once

#include "executor/device/cpu/product.hpp"
#include "executor/device/device.hpp"

namespace zeroplan::executor::cpu {

// Where the heads of an attention instruction are. Rows of qkv are {query heads, key heads, value heads};
// normed queries and keys, where an instruction has them, {query heads, key heads}. Query head h uses
// key-value head h / group().
struct Heads {
  std::int64_t sequences = 0, sequence = 0, heads = 0, kv_heads = 0;
  Elements head_dim = 0;

  float scale = 1;     // of the scores
  float soft_cap = 0;  // of the scaled scores; 0: none
  const program::ModelConstants* model = nullptr;
  bool windowed = false;  // this layer sees model->window only

  std::int64_t group() const { return heads / kv_heads; }
  std::int64_t tokens() const { return sequences * sequence; }
  Elements packed_width() const { return (heads + 2 * kv_heads) * head_dim; }
  Elements context_width() const { return heads * head_dim; }

  // The keys that the query at a position sees: from first_seen() to itself.
  std::int64_t first_seen(std::int64_t query) const { return windowed ? model->window.first_seen(query) : 0; }
  // How far a score falls with each position between query and key: ALiBi's slope, or 0.
  float slope(std::int64_t head) const {
    return model->alibi_heads > 0 ? static_cast<float>(model->alibi_slope(head)) : 0.0F;
  }
};
// Checks the dims. Refers to `settings`.
Heads heads_of(const Kernel& kernel, const StepSettings& settings);

// Of the keys [first_key, first_key + keys), those that a query sees, as a range of this block.
struct Seen {
  Elements begin = 0, end = 0;
};
Seen seen_keys(const Heads& heads, std::int64_t query, std::int64_t first_key, std::int64_t keys);

// Scaled products of a query with the keys of `seen` become scores: capped, then lowered with the distance.
void finish_scores(const Heads& heads, float slope, std::int64_t query, std::int64_t first_key, Seen seen,
                   float* scores);

// Blocks of queries that are computed together. None of them lies in two chunks or is longer than a sliding
// window, so that a block's products are at most twice what its queries see.
class QueryBlocks {
 public:
  QueryBlocks(const Heads& heads, std::int64_t most);
  std::int64_t count() const { return count_; }
  std::int64_t first(std::int64_t block) const {
    return block / per_segment_ * segment_ + block % per_segment_ * step_;
  }
  // 0 behind the end of a last chunk that is not whole.
  std::int64_t queries(std::int64_t block) const;

 private:
  std::int64_t sequence_, segment_, step_, per_segment_, count_;
};

// One head of one sequence inside a tensor: `sequence` rows of head_dim.
struct HeadRows {
  Tensor tensor;
  Elements offset = 0, stride = 0;
};

// Queries, keys and values of an instruction.
struct PackedHeads {
  HeadRows query(std::int64_t at_sequence, std::int64_t head) const;
  HeadRows key(std::int64_t at_sequence, std::int64_t kv_head) const;
  HeadRows value(std::int64_t at_sequence, std::int64_t kv_head) const;

  Heads heads;
  Tensor query_key, packed;
  Elements query_key_stride = 0;
};
// Operands `packed` and, where it has data, `normed`; of dqkv, whose layout is qkv's, no `normed`.
PackedHeads packed_operands(const Kernel& kernel, const Heads& heads, std::size_t packed);
PackedHeads packed_operands(const Kernel& kernel, const Heads& heads, std::size_t packed, std::size_t normed);

// A head of the attention's output or its gradient, {tokens, heads x head_dim}.
HeadRows context_head(const Tensor& context, const Heads& heads, std::int64_t at_sequence, std::int64_t head);

inline Panel read_head(const HeadRows& rows, std::int64_t first, std::int64_t count, Elements head_dim,
                       Scratch& scratch) {
  return read_panel(rows.tensor, rows.offset + first * rows.stride, rows.stride, count, head_dim, scratch);
}
inline OutputPanel begin_head(const HeadRows& rows, std::int64_t first, std::int64_t count, Elements head_dim,
                              Scratch& scratch) {
  return begin_panel(rows.tensor, rows.offset + first * rows.stride, rows.stride, count, head_dim, scratch);
}
inline void finish_head(const HeadRows& rows, std::int64_t first, std::int64_t count, Elements head_dim,
                        const OutputPanel& panel) {
  finish_panel(rows.tensor, rows.offset + first * rows.stride, rows.stride, count, head_dim, panel);
}

}  // namespace zeroplan::executor::cpu
