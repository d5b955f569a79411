#include "executor/device/cpu/heads.hpp"

#include <algorithm>
#include <cmath>

#include "executor/device/cpu/functions.hpp"
#include "executor/device/cpu/operands.hpp"

namespace zeroplan::executor::cpu {

Heads heads_of(const Kernel& kernel, const StepSettings& settings) {
  const program::ModelConstants& model = settings.model;
  Heads heads{kernel.dims[0], kernel.dims[1], kernel.dims[2], kernel.extra, kernel.dims[3]};
  const double scale = 1.0 / std::sqrt(static_cast<double>(heads.head_dim));
  heads.scale = static_cast<float>(model.attention_scale > 0 ? model.attention_scale : scale);
  heads.soft_cap = static_cast<float>(model.attention_soft_cap);
  heads.model = &model;
  heads.windowed = model.window.is_windowed(kernel.layer);
  if (heads.kv_heads == 0 || heads.heads % heads.kv_heads != 0) {
    refuse(kernel, "extra must be the key-value heads, a divisor of the heads");
  }
  return heads;
}

Seen seen_keys(const Heads& heads, std::int64_t query, std::int64_t first_key, std::int64_t keys) {
  const Elements end = std::clamp<std::int64_t>(query + 1 - first_key, 0, keys);
  return {std::clamp<std::int64_t>(heads.first_seen(query) - first_key, 0, end), end};
}

void finish_scores(const Heads& heads, float slope, std::int64_t query, std::int64_t first_key, Seen seen,
                   float* scores) {
  const float cap = heads.soft_cap;
  if (cap > 0) {
    wide([=]() ZEROPLAN_INLINE {
      ZEROPLAN_SIMD
      for (Elements i = seen.begin; i < seen.end; ++i) scores[i] = soft_capped(scores[i], cap);
    });
  }
  if (slope == 0) return;
  const auto distance = static_cast<float>(query - first_key);  // of the block's first key
  wide([=]() ZEROPLAN_INLINE {
    ZEROPLAN_SIMD
    for (Elements i = seen.begin; i < seen.end; ++i) scores[i] -= slope * (distance - static_cast<float>(i));
  });
}

QueryBlocks::QueryBlocks(const Heads& heads, std::int64_t most)
    : sequence_(heads.sequence), segment_(heads.sequence), step_(most) {
  using Kind = program::AttentionWindow::Kind;
  if (heads.windowed) {
    const std::int64_t size = std::min(heads.model->window.size, sequence_);
    if (heads.model->window.kind == Kind::chunked) segment_ = size;
    step_ = std::min(most, size);
  }
  per_segment_ = div_ceil(segment_, step_);
  count_ = div_ceil(sequence_, segment_) * per_segment_;
}

std::int64_t QueryBlocks::queries(std::int64_t block) const {
  const std::int64_t end = std::min(sequence_, (block / per_segment_ + 1) * segment_);
  return std::clamp<std::int64_t>(end - first(block), 0, step_);
}

HeadRows PackedHeads::query(std::int64_t at_sequence, std::int64_t head) const {
  return {query_key, at_sequence * heads.sequence * query_key_stride + head * heads.head_dim,
          query_key_stride};
}

HeadRows PackedHeads::key(std::int64_t at_sequence, std::int64_t kv_head) const {
  return query(at_sequence, heads.heads + kv_head);
}

HeadRows PackedHeads::value(std::int64_t at_sequence, std::int64_t kv_head) const {
  const Elements stride = heads.packed_width();
  const std::int64_t head = heads.heads + heads.kv_heads + kv_head;
  return {packed, at_sequence * heads.sequence * stride + head * heads.head_dim, stride};
}

PackedHeads packed_operands(const Kernel& kernel, const Heads& heads, std::size_t packed) {
  const Tensor& qkv = kernel.operands[packed];
  return {heads, qkv, qkv, heads.packed_width()};
}

PackedHeads packed_operands(const Kernel& kernel, const Heads& heads, std::size_t packed,
                            std::size_t normed) {
  PackedHeads result = packed_operands(kernel, heads, packed);
  const Elements width = (heads.heads + heads.kv_heads) * heads.head_dim;
  const Tensor query_key = kernel.operands[normed];
  if (query_key) {
    result.query_key = query_key;
    result.query_key_stride = width;
  }
  return result;
}

HeadRows context_head(const Tensor& context, const Heads& heads, std::int64_t at_sequence,
                      std::int64_t head) {
  const Elements stride = heads.context_width();
  return {context, at_sequence * heads.sequence * stride + head * heads.head_dim, stride};
}

}  // namespace zeroplan::executor::cpu
