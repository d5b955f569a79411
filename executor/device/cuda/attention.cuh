#pragma once

#include <algorithm>
#include <cmath>

#include "executor/device/cuda/kernel_code.cuh"
#include "executor/device/cuda/kernels.hpp"
#include "executor/error.hpp"

// What the kernels of attention have in common. Rows of qkv are {query heads, key heads, value heads}; normed queries
// and keys, where an instruction has them, {query heads, key heads}. Query head h uses key-value head h / group.
namespace zeroplan::executor::cuda {

inline constexpr int kMostBiasedHeads = 256;

enum class Window : int { none, sliding, chunked };

// Of one instruction, by value.
struct AttentionNumbers {
  int sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t query_key_stride = 0, packed_stride = 0, context_stride = 0;  // elements between tokens
  float scale = 1;                                                           // of the scores
  float soft_cap = 0;                                                        // of scaled scores; 0: none
  Window window = Window::none;
  int window_size = 0;
  bool is_biased = false;
  float slopes[kMostBiasedHeads] = {};  // how far a head's scores fall with each position (ALiBi)
};

// Where a head of one sequence begins in rows of query and key heads, of values, of the context.
struct HeadOffsets {
  std::int64_t query, key, value, context, rows;
};
__device__ __forceinline__ HeadOffsets offsets_of(const AttentionNumbers& n, int sequence, int head,
                                                  int kv_head) {
  const std::int64_t token = static_cast<std::int64_t>(sequence) * n.sequence;
  const std::int64_t dim = n.head_dim;
  return {token * n.query_key_stride + head * dim, token * n.query_key_stride + (n.heads + kv_head) * dim,
          token * n.packed_stride + (n.heads + n.kv_heads + kv_head) * dim,
          token * n.context_stride + head * dim, token * n.heads + head};
}

// AttentionWindow::first_seen for the device.
__device__ __forceinline__ int first_seen(const AttentionNumbers& n, int query) {
  if (n.window == Window::sliding) return query < n.window_size ? 0 : query - n.window_size + 1;
  if (n.window == Window::chunked) return query - query % n.window_size;
  return 0;
}
// Behind the last query that sees a key.
__device__ __forceinline__ int seen_until(const AttentionNumbers& n, int key) {
  std::int64_t end = n.sequence;
  if (n.window == Window::sliding) end = static_cast<std::int64_t>(key) + n.window_size;
  if (n.window == Window::chunked) end = static_cast<std::int64_t>(key) - key % n.window_size + n.window_size;
  return end < n.sequence ? static_cast<int>(end) : n.sequence;
}

// ---- the host's side ----

// Of an attention instruction; operand `normed` is its normed queries and keys, or none (-1). Throws DeviceError on
// what the kernels cannot have.
AttentionNumbers attention_numbers(const Kernel& kernel, int normed);

// Throws DeviceError unless all of these operands are of the first one's type.
program::DataType common_type(const Kernel& kernel, std::initializer_list<std::size_t> operands);

[[noreturn]] void refuse(const Kernel& kernel, const std::string& reason);

// What a block may have of shared memory (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
std::size_t most_shared_bytes(int sm);

template <class T>
T* elements_of(const Tensor& tensor) {
  return reinterpret_cast<T*>(tensor.data);
}
// Queries and keys: the normed ones where there are such.
template <class T>
const T* query_key_of(const Kernel& kernel, std::size_t packed, std::size_t normed) {
  return elements_of<const T>(kernel.operands[normed] ? kernel.operands[normed] : kernel.operands[packed]);
}

// Calls body(T{}) with the type's elements.
template <class Body>
void with_type(program::DataType type, const Body& body) {
  if (type == program::DataType::fp32) return body(float{});
  if (type == program::DataType::fp16) return body(fp16{});
  body(bf16{});
}

// kernels/attention_plain.cu: for every type and head size.
void plain_attention_forward(const Kernel& kernel, const Launcher& launcher);
void plain_attention_backward(const Kernel& kernel, const Launcher& launcher);

}  // namespace zeroplan::executor::cuda
