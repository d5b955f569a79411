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

  std::int64_t group() const { return heads / kv_heads; }
  std::int64_t tokens() const { return sequences * sequence; }
  Elements packed_width() const { return (heads + 2 * kv_heads) * head_dim; }
  Elements context_width() const { return heads * head_dim; }
  float scale() const;  // 1 / sqrt(head_dim)
};
// Checks the dims.
Heads heads_of(const Kernel& kernel);

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
