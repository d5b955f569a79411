#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/program/model_constants.hpp"
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
inline constexpr std::size_t kDataTypes = 5;
std::string_view name_of(DataType type);

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
  // The engine that the plan names holds it, and no instruction of this program uses it: it counts in that
  // engine's memory, and not in what a run of the program writes.
  bool reserved = false;
};

// Who takes part in a collective.
enum class Group : std::uint8_t { none, data_parallel, tensor_parallel };
std::string_view name_of(Group group);

// What an instruction occupies while it runs.
enum class Stream : std::uint8_t { compute, communication, copy, host };

enum class Phase : std::uint8_t { setup, forward, backward, step };
std::string_view name_of(Phase phase);

// The instruction set. Above each instruction: its dims in braces, then its operands in their order (in:
// read, out: written, io: both; those in brackets may be absent). m, n, k as in C[m,n] = A[m,k] B[k,n];
// weights are stored {outputs, inputs} row by row. "parameters" of a norm are its weight and, behind it, its
// bias if it has one.
enum class Op : std::uint8_t {
  // ---- structure ----
  // {count >= 1, first, step, index of its end}: layer := layer + first + i * step; iteration := i where step
  // is 0
  repeat,
  // restores both registers
  end_repeat,
  // {Phase}: names what follows, until the next
  phase,

  // ---- memory ----
  // out: one instance
  acquire,
  // in: one instance, always the one acquired last (a stack)
  release,
  // out: every instance, in order
  acquire_all,
  // in: every instance, last first
  release_all,

  // ---- data movement; all {elements} ----
  // out tokens, out targets: this rank's next micro-batch
  load_batch,
  // out
  fill_zero,
  // in, out
  copy,
  // in, io: out += in
  accumulate,
  // in device, out host
  copy_to_host,
  // in host, out device
  copy_to_device,
  // in device, io host: host += device
  accumulate_host,

  // ---- forward ----
  // {tokens, width, table rows, first row}, extra: sequence; in tokens, [in table], [in positions], out. Tokens
  // outside the rows, and positions where the first row is not 0, are left to the other tensor-parallel ranks.
  // Without a table the positions are added to out
  embedding_forward,
  // {rows, width, heads, first column}; in x, in parameters, out y, out statistics. Where heads is not 0, rows
  // are so many heads of each token, which begin at the first column of the token's row in x and y
  norm_forward,
  // {m = tokens, n = outputs, k = inputs}; in x, in weight, [in bias], out y = x W^T + b
  matmul,
  // {tokens, heads turned, head_dim}, extra: sequence; io query and key. Turns by the constants' rotary
  rotary_forward,
  // {sequences, sequence, heads, head_dim}, extra: key-value heads; in qkv, [in normed query and key], out y,
  // out log-sum-exp. Causal; scores are scaled, capped, biased and windowed as the constants say
  attention_forward,
  // as attention_forward; in qkv, [in normed query and key], out scores
  attention_scores,
  // {rows, width}; in scores, out probabilities (may be the same)
  softmax_forward,
  // {elements}; in, out mask, out y
  dropout_forward,
  // as attention_forward; in probabilities, in qkv, out y
  attention_values,
  // {tokens, width}, extra: ActivationKind; in pre-activation (2 x width where gated), out
  activation_forward,
  // {tokens, hidden}; in branch, [in bias], in residual, [out mask], out
  residual_add,
  // {tokens, columns, first column, columns that are vocabulary and not padding}; io logits, which are capped where the
  // model caps them, out maximum
  cross_entropy_maximum,
  // as cross_entropy_maximum; in logits, in targets, in maximum, out {sum of exponentials, target logit} per
  // token
  cross_entropy_exponent,
  // {tokens}; in maximum, in {sum, target logit}, io scalars
  cross_entropy_loss,
  // {tokens, experts, top_k, hidden}; in router logits, in x, out x by expert
  route_tokens,
  // as route_tokens; in router logits, in expert outputs, [in shared output], out y
  combine_tokens,

  // ---- backward. Gradients of inputs are added to, or set with kOverwrite; of parameters always added to ----
  // as cross_entropy_maximum; in logits, in targets, in maximum, in sums, in scalars, out gradient of the
  // logits
  cross_entropy_backward,
  // {m, n, k}; in dy, in weight, io dx
  matmul_input_gradient,
  // {m, n, k}; in dy, in x, io dW, [io db]
  matmul_weight_gradient,
  // {tokens, hidden}; in dy, in mask, out gradient of the branch
  residual_backward,
  // {tokens, width}, extra: ActivationKind; in dy, in pre-activation, out its gradient (may be the same)
  activation_backward,
  // as attention_forward; in dy, in y, out fp32 row sums of dy * y
  attention_row_dot,
  // as attention_forward; in dy, in qkv, [in normed query and key], in log-sum-exp, in row sums, out dqkv
  attention_backward,
  // as attention_forward; in dy, in probabilities, in qkv, out d probabilities, out dqkv (the value part)
  attention_values_backward,
  // {elements}; in mask, io
  dropout_backward,
  // {rows, width}; in probabilities, io d probabilities, which become d scores
  softmax_backward,
  // as attention_forward; io d scores, in qkv, [in normed query and key], out dqkv (the query and key parts)
  attention_scores_backward,
  // as rotary_forward; io d query and key
  rotary_backward,
  // as norm_forward; in dy, in x, in parameters, in statistics, io dx, io d parameters
  norm_backward,
  // as embedding_forward; in dx, in tokens, [io d table], [io d positions]
  embedding_backward,
  // as route_tokens; in dy, in router logits, in expert outputs, out their gradients (may be the same), out d
  // router logits
  combine_backward,
  // as route_tokens; in d x by expert, io dx
  route_backward,

  // ---- step ----
  // {elements owned, of them held by this tensor-parallel rank only}; in gradient, io scalars: overflow, norm
  // parts
  gradient_norm,
  // {elements, chunk}; in gradient, in scalars, out fp32: unscaled and clipped. The chunk from iteration *
  // chunk on
  gradient_to_fp32,
  // {elements, chunk}, extra: number of its unit in StepProgram::units from 1, or 0; in fp32 gradient, io
  // master (absent: the parameter is its own), out parameter, io states ...
  optimizer_update,
  // io scalars: squared norm, loss scale, step count
  scale_update,

  // ---- collectives; {elements of the whole vector} ----
  // io
  all_reduce,
  // io whole: its own partition becomes the sum
  reduce_scatter,
  // in own partition, out whole (the partition may be its place in the whole)
  all_gather,
  // io
  broadcast,
};
std::string_view name_of(Op op);

// One operand: the instance of `buffer` for layer (register + layer_offset).
struct Operand {
  BufferId buffer = kNoBuffer;
  std::int16_t layer_offset = 0;
};

enum class ActivationKind : std::uint32_t { gelu, silu, relu, gated_gelu, gated_silu, gated_relu };

enum Flag : std::uint8_t {
  kRecomputed = 1,  // forward work done a second time
  kOverwrite = 2,   // output is set, not added to
  kMaximum = 4,     // all_reduce takes the maximum instead of the sum
  kBeside = 8,      // a collective that the next kernel does not need: it may run beside it
};

inline constexpr std::size_t kMaxOperands = 6;

struct Instruction {
  Op op = Op::phase;
  Group group = Group::none;
  Stream stream = Stream::compute;
  std::uint8_t flags = 0;
  std::uint32_t extra = 0;
  std::array<std::int64_t, 4> dims{};
  std::array<Operand, kMaxOperands> operands{};  // absent ones have kNoBuffer
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

// Fields of the `scalars` buffer, fp32. The first are summed over data-parallel ranks, those behind the loss
// over tensor-parallel ranks. The squared norm of the gradients is summed in parts, each a multiple of its
// own power of two, so that the sum over ranks is exact and the norm does not depend on how gradients are
// divided.
inline constexpr std::int64_t kNormParts = 10;
enum class Scalar : std::uint8_t {
  loss,
  overflow,
  norm_parts,
  loss_scale = norm_parts + kNormParts,
  good_steps,
  steps,
  squared_norm,  // set from its parts by scale_update
};
inline constexpr Elements kScalars = 32;

// A unit of parameters as this rank holds it: `layers` flat vectors that are gathered, reduced and updated
// together. A partition is [rank * partition, + owned) of the `elements`, padded to `partition` elements;
// where nothing is partitioned both are `elements`.
struct UnitPlacement {
  BufferId parameter = kNoBuffer, gradient = kNoBuffer, master = kNoBuffer;
  std::array<BufferId, 4> states{kNoBuffer, kNoBuffer, kNoBuffer, kNoBuffer};
  bool is_layer = false;  // not the embedding or the head: `first_layer` counts among the model's layers
  std::int32_t first_layer = 0;
  std::int64_t layers = 1;
  Elements elements = 0, partition = 0, owned = 0;
  bool parameter_is_partition = false, gradient_is_partition = false;  // of the persistent buffers
  bool states_are_partition = false;                                   // master and states
};

// A parameter tensor of this rank: `copies` times {outputs, inputs}, `offset` elements into each of its
// unit's vectors. It is the block of the model's tensor {whole_outputs, whole_inputs} that starts at
// {first_output, first_input}; what lies beyond the whole is padding (of the vocabulary).
struct TensorPlacement {
  std::string_view name;
  std::size_t unit = 0;  // index into StepProgram::units
  Elements outputs = 0, inputs = 0;
  std::int64_t copies = 1;
  Elements offset = 0;
  Elements first_output = 0, first_input = 0;
  Elements whole_outputs = 0, whole_inputs = 0;
  bool replicated = false;  // every tensor-parallel rank holds the same
};

// Something of the model that the program leaves out or does in another way.
struct Approximation {
  std::string_view key;  // of the model's description (docs/models.md); static
  std::string what;      // a sentence without its full stop
  bool trains_another_model = false;
  bool changes_figures = false;  // bytes, FLOPs or seconds are not those of the model
};

struct StepProgram {
  std::vector<Buffer> buffers;
  std::vector<Instruction> code;
  ModelConstants constants;
  std::vector<Approximation> approximations;
  std::vector<UnitPlacement> units;
  std::vector<TensorPlacement> tensors;
  GroupInfo data_parallel, tensor_parallel;
  Elements parameters = 0;         // of the whole model, tied and replicated ones once
  Elements active_parameters = 0;  // that one token uses
  std::int64_t layers = 0;
  std::int64_t tokens_per_step = 0;  // of all ranks
  bool states_only = false;          // activations are not described (`params=` models)
};

}  // namespace zeroplan::program
