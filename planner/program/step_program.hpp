#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "planner/units.hpp"

// Everything one rank does in one optimizer step, as plain data. The planner reads it (planner/predict) and
// an executor runs it; there is no second description of a step anywhere.
//
// A program is a table of buffers and a tree of code. The tree is stored in prefix order: `repeat ...
// end_repeat` and `phase` are instructions among the others, so reading is one scan and a program's length
// does not grow with the depth of the model. While code runs there is one register, `layer`; a repeat moves
// it, and an operand means the instance of its buffer that belongs to that layer.
namespace zeroplan::program {

enum class DataType : std::uint8_t { fp32, fp16, bf16, int32, uint8 };

constexpr Bytes bytes_of(DataType type) {
  switch (type) {
    case DataType::fp32:
    case DataType::int32:
      return 4;
    case DataType::fp16:
    case DataType::bf16:
      return 2;
    case DataType::uint8:
      return 1;
  }
  return 0;
}

// What a buffer is for; the lines of every memory report.
enum class Category : std::uint8_t {
  parameter,        // weights in the type the model computes in, or a partition of them
  gradient,         // accumulated gradients, or a partition of them
  optimizer_state,  // fp32 master weights, momentum, variance ...
  activation,       // kept from forward for backward, and the tensors flowing between kernels
  checkpoint,       // a block's input kept under full recomputation
  gathered,         // ZeRO-3: a layer's whole weights while it is computed
  bucket,     // whole gradients on their way to a partition; constant-size fp32 buffers of the step (C_B)
  logits,     // tokens x vocabulary: fp32 logits and their gradient
  workspace,  // scratch of kernels, tokens, scalars
};
inline constexpr std::size_t kCategories = 9;
std::string_view name_of(Category category);

enum class Space : std::uint8_t { device, host };

using BufferId = std::uint16_t;
inline constexpr BufferId kNoBuffer = 0xffff;

// A named piece of memory with `instances` equal parts (one per layer, or a ring of slots). The instance of
// layer l is (l - first_layer) mod instances. A view (parent != kNoBuffer) is a part of its parent: same
// instance, starting `offset` elements in; it is never acquired itself.
struct Buffer {
  std::string_view name;  // static text
  DataType type = DataType::fp32;
  Category category = Category::workspace;
  Space space = Space::device;
  BufferId parent = kNoBuffer;
  std::int32_t first_layer = 0;
  std::int64_t instances = 1;
  Elements elements = 0;  // of one instance, partition padding included
  Elements offset = 0;    // views: first element inside the parent's instance
  Bytes bytes = 0;  // of one instance as allocated: elements x type, rounded up to the engine's alignment
};

// Who takes part in a collective.
enum class Group : std::uint8_t { none, data_parallel, tensor_parallel };
std::string_view name_of(Group group);

// What an instruction occupies while it runs.
enum class Stream : std::uint8_t { compute, communication, copy, host };

enum class Phase : std::uint8_t { setup, forward, backward, step };
std::string_view name_of(Phase phase);

// The instruction set. `dims` and operands (in = read, out = written, io = both) of each; m, n, k as in
// C[m,n] = A[m,k] B[k,n]. "t" marks the type of the operand's buffer. Weights are stored {outputs, inputs}
// row by row.
enum class Op : std::uint8_t {
  // structure
  repeat,  // dims {count, first, step, index of its end}: layer := layer + first + i * step (iteration := i
           // where
           // step is 0); count >= 1
  end_repeat,  // restores the layer register
  phase,       // dims {Phase}: names what follows, until the next
  // memory
  acquire,      // out: one instance
  release,      // in: one instance, always the one acquired last (a stack)
  acquire_all,  // out: every instance
  release_all,  // in: every instance, last first
  // kernels: data movement
  fill_zero,        // {elements}; out
  copy,             // {elements}; in, out
  accumulate,       // {elements}; in, io: out += in
  copy_to_host,     // {elements}; in device, out host
  copy_to_device,   // {elements}; in host, out device
  accumulate_host,  // {elements}; in device, io host: host += device
  // kernels: forward. "parameters" of a norm are its weight and, behind it, its bias if it has one
  embedding_forward,  // {tokens, width, local vocabulary}; in tokens, in table, [in positions], out
  norm_forward,       // {rows, width}; in x, in parameters, out y, out statistics
  matmul,             // {m = tokens, n = outputs, k = inputs}; in x, in weight, [in bias], out y = x W^T + b
  rotary_forward,     // {tokens, heads turned, head_dim}; io query and key
  attention_forward,  // {sequences, sequence, heads, head_dim}, extra: kv_heads; in qkv, [in normed query and
                      // key], out y,
                      // out log-sum-exp
  attention_scores,   // the same; in qkv, [in normed query and key], out scores = Q K^T / sqrt(d), causal
  softmax_forward,    // {rows, width}; in scores, out probabilities (may be the same)
  dropout_forward,    // {elements}; in, out mask, out y
  attention_values,   // as attention_forward; in probabilities, in qkv, out y
  activation_forward,  // {tokens, width}, extra: ActivationKind; in pre-activation, out (gated: the input is
                       // 2 x width)
  residual_add,        // {tokens, hidden}; in branch, [in bias], in residual, [out mask], out
  cross_entropy_maximum,   // {tokens, local vocabulary}; in logits, out maximum
  cross_entropy_exponent,  // {tokens, local vocabulary}; in logits, in targets, in maximum, out {sum, target
                           // logit}
  cross_entropy_loss,      // {tokens}; in maximum, in {sum, target logit}, io scalars
  route_tokens,            // {tokens, experts, top_k, hidden}; in router logits, in x, out x by expert
  combine_tokens,  // {tokens, experts, top_k, hidden}; in router logits, in expert outputs, [in shared], out
                   // y
  // kernels: backward, of the same shapes. Gradients of inputs are added to, or set with kOverwrite;
  // gradients of
  // parameters are always added to
  cross_entropy_backward,  // {tokens, local vocabulary}; in logits, in targets, in maximum, in sums, in
                           // scalars, out dlogits
  matmul_input_gradient,   // {m, n, k}; in dy, in weight, io dx
  matmul_weight_gradient,  // {m, n, k}; in dy, in x, io dW, [io db]
  residual_backward,       // {tokens, hidden}; in dy, in mask, out branch gradient
  activation_backward,     // {tokens, width}; in dy, in pre-activation, out its gradient (may be the same)
  attention_row_dot,       // as attention_forward; in dy, in y, out fp32 row sums of dy * y
  attention_backward,      // in dy, in qkv, [in normed query and key], in log-sum-exp, in row sums, out dqkv
  attention_values_backward,  // in dy, in probabilities, in qkv, out d probabilities, out dqkv (the value
                              // part)
  dropout_backward,           // {elements}; in mask, io
  softmax_backward,           // {rows, width}; in probabilities, io d probabilities -> d scores
  attention_scores_backward,  // in d scores, in qkv, [in normed query and key], out dqkv (the query and key
                              // parts)
  rotary_backward,            // {tokens, heads turned, head_dim}; io d query and key
  norm_backward,       // {rows, width}; in dy, in x, in parameters, in statistics, io dx, io d parameters
  embedding_backward,  // {tokens, width, local vocabulary}; in dx, in tokens, io d table, [io d positions]
  combine_backward,    // {tokens, experts, top_k, hidden}; in dy, in router logits, in expert outputs,
                       // out d expert outputs (may be the same), out d router logits
  route_backward,      // {tokens, experts, top_k, hidden}; in d x by expert, out dx
  // kernels: step
  gradient_norm,     // {elements, of them held by this tensor-parallel rank only}; in gradient, io scalars
  gradient_to_fp32,  // {elements, chunk}; in gradient, in scalars, out fp32: unscaled and clipped. Of
                     // `elements` the chunk
                     // that starts at iteration * chunk
  optimizer_update,  // {elements, chunk}; in fp32 gradient, io master (none: the parameter is), out
                     // parameter,
                     // io states ...
  scale_update,      // {}; io scalars: loss scale, step count, overflow
  // collectives: dims {elements of the whole vector, calls}
  all_reduce,      // io
  reduce_scatter,  // io whole: own partition of it is the sum
  all_gather,      // in own partition, out whole (the partition may be its place in the whole)
  broadcast,       // io
};
std::string_view name_of(Op op);

// One operand: the instance of `buffer` for layer (register + layer_offset).
struct Operand {
  BufferId buffer = kNoBuffer;
  std::int16_t layer_offset = 0;
};

enum class ActivationKind : std::uint16_t { gelu, silu, relu, gated_gelu, gated_silu, gated_relu };

enum Flag : std::uint8_t {
  kRecomputed = 1,  // forward work done a second time
  kOverwrite = 2,   // output is set, not added to
  kMaximum = 4,     // all_reduce takes the maximum instead of the sum
};

inline constexpr std::size_t kMaxOperands = 6;

struct Instruction {
  Op op = Op::phase;
  Group group = Group::none;
  Stream stream = Stream::compute;
  std::uint8_t flags = 0;
  std::uint8_t operand_count = 0;
  std::uint8_t spare = 0;
  std::uint16_t extra = 0;
  std::array<std::int64_t, 4> dims{};
  std::array<Operand, kMaxOperands> operands{};
};
static_assert(sizeof(Instruction) == 64, "one cache line each");

// Which rank of each group the program is for. Partitions are padded to equal sizes, so buffers are the same
// on every rank; what a rank owns of them (instructions over real elements) differs on the last ones.
struct RankPosition {
  std::int64_t data_parallel = 0;
  std::int64_t tensor_parallel = 0;
};

// A group of ranks as one rank sees it.
struct GroupInfo {
  std::int64_t size = 1;
  std::int64_t rank = 0;
};

struct StepProgram {
  std::vector<Buffer> buffers;
  std::vector<Instruction> code;
  GroupInfo data_parallel, tensor_parallel;
  Elements parameters = 0;         // of the whole model, tied and replicated ones once
  Elements active_parameters = 0;  // that one token uses
  std::int64_t layers = 0;
  std::int64_t tokens_per_step = 0;  // of all ranks
  bool states_only = false;          // activations are not described (`params=` models)
};

}  // namespace zeroplan::program
