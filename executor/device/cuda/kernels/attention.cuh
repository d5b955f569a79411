#pragma once

#include "executor/device/cuda/kernels/reals.cuh"
#include "executor/device/cuda/launch.hpp"

// What the kernels of attention have in common. Rows of qkv are {query heads, key heads, value heads}; normed queries
// and keys, where an instruction has them, {query heads, key heads}. Query head h uses key-value head h / group().
namespace zeroplan::executor::cuda {

inline constexpr int kMostBiasedHeads = 256;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Window = program::AttentionWindow::Kind;

// Of one instruction, by value.
struct AttentionNumbers {
  int sequences = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
  Index query_key_stride = 0, packed_stride = 0;  // elements between tokens
  float scale = 1;                                // of the scores
  float soft_cap = 0;                             // of the scaled scores; 0: none
  float inverse_cap = 0;                          // 1 / soft_cap, which saves a division that is a call
  Window window = Window::none;
  int window_size = 0;
  bool is_biased = false;
  float slopes[kMostBiasedHeads] = {};  // how far a head's scores fall with each position (ALiBi)

  __host__ __device__ int group() const { return heads / kv_heads; }
  __host__ __device__ Index context_stride() const { return static_cast<Index>(heads) * head_dim; }
  // Scores are more than scaled products.
  __host__ __device__ bool is_shaped() const { return soft_cap > 0 || is_biased; }

  // Where a head of a sequence begins: of the queries and keys, of the values and of the context.
  __device__ Index query(int at, int head) const { return row(at) * query_key_stride + column(head); }
  __device__ Index key(int at, int kv_head) const {
    return row(at) * query_key_stride + column(heads + kv_head);
  }
  __device__ Index value(int at, int kv_head) const {
    return row(at) * packed_stride + column(heads + kv_heads + kv_head);
  }
  __device__ Index context(int at, int head) const { return row(at) * context_stride() + column(head); }
  // In qkv's layout whether or not there are normed queries and keys: of dqkv.
  __device__ Index packed_query(int at, int head) const { return row(at) * packed_stride + column(head); }
  __device__ Index packed_key(int at, int kv_head) const { return packed_query(at, heads + kv_head); }
  // Of fp32 numbers of rows, {tokens, heads}.
  __device__ Index number(int at, int query, int head) const { return (row(at) + query) * heads + head; }

  __device__ int first_seen(int query) const {
    return program::AttentionWindow::first_seen_in(window, window_size, query);
  }
  // Behind the last query that sees a key.
  __device__ int seen_until(int key) const {
    Index end = sequence;
    if (window == Window::sliding) end = static_cast<Index>(key) + window_size;
    if (window == Window::chunked) end = static_cast<Index>(key) - key % window_size + window_size;
    return end < sequence ? static_cast<int>(end) : sequence;
  }
  __device__ bool sees(int query, int key) const { return key <= query && key >= first_seen(query); }

 private:
  __device__ Index row(int at) const { return static_cast<Index>(at) * sequence; }
  __device__ Index column(int head) const { return static_cast<Index>(head) * head_dim; }
};

// ---- the host's side (attention_plain.cu) ----

// Of an attention instruction whose operand `normed` may have queries and keys; -1: it has no such operand. Throws
// DeviceError on what the kernels cannot have.
AttentionNumbers attention_numbers(const Kernel& kernel, int normed);

// Queries and keys: those of `normed` where there are such, else of `packed`.
inline const Tensor& query_key_of(const Kernel& kernel, std::size_t packed, std::size_t normed) {
  return kernel.operands[normed] ? kernel.operands[normed] : kernel.operands[packed];
}

// What a block can have of shared memory (CUDA C++ Programming Guide 13, table of compute capabilities: 99, 163 or
// 227 KiB; of 12, 96 KiB for 7.0 and 64 for 7.5).
std::size_t most_shared_bytes(int sm);

// For every type and head size.
void plain_attention_forward(const Kernel& kernel, const Launcher& launcher);
void plain_attention_backward(const Kernel& kernel, const Launcher& launcher);

}  // namespace zeroplan::executor::cuda
