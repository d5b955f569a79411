#include "executor/device/cpu/heads.hpp"

#include <cmath>

#include "executor/device/cpu/operands.hpp"

namespace zeroplan::executor::cpu {

float Heads::scale() const { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim))); }

Heads heads_of(const Kernel& kernel) {
  const Heads heads{kernel.dims[0], kernel.dims[1], kernel.dims[2], kernel.extra, kernel.dims[3]};
  if (heads.kv_heads == 0 || heads.heads % heads.kv_heads != 0) {
    refuse(kernel, "extra must be the key-value heads, a divisor of the heads");
  }
  return heads;
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
  const Tensor& qkv = real_operand(kernel, packed, heads.tokens() * heads.packed_width());
  return {heads, qkv, qkv, heads.packed_width()};
}

PackedHeads packed_operands(const Kernel& kernel, const Heads& heads, std::size_t packed,
                            std::size_t normed) {
  PackedHeads result = packed_operands(kernel, heads, packed);
  const Elements width = (heads.heads + heads.kv_heads) * heads.head_dim;
  const Tensor query_key = optional_operand(kernel, normed, heads.tokens() * width);
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
