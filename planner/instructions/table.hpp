#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "planner/instructions/instruction.hpp"
#include "planner/instructions/row.hpp"
#include "planner/units.hpp"

// The instruction table: one row for each instruction, in the order of Op. Whatever is said of an instruction by its
// kind is read from here: what it moves, how large its operands are, which of them it reads and writes, whether it
// takes time, what bounds it.
namespace zeroplan::program {

inline constexpr std::array<InstructionRow, kOps> kInstructions{{
    // layer := layer + first + i * step for i < count; iteration := i where step is 0.
    {.op = Op::repeat, .name = "repeat", .kind = Class::structure, .dims = {"count", "first", "step", "end"}},
    // Restores both registers.
    {.op = Op::end_repeat, .name = "end_repeat", .kind = Class::structure},
    // Names what follows, until the next.
    {.op = Op::phase, .name = "phase", .kind = Class::structure, .dims = {"phase"}},

    // Every stream waits for all that was issued on any.
    {.op = Op::wait_for_all, .name = "wait_for_all", .kind = Class::structure},

    {.op = Op::acquire,
     .name = "acquire",
     .kind = Class::memory,
     .operands = {any_type(out("instance", nothing))},
     .takes = {1, false}},
    // The instance is always the one acquired last (a stack).
    {.op = Op::release,
     .name = "release",
     .kind = Class::memory,
     .operands = {any_type(in("instance", nothing))},
     .takes = {-1, false}},
    {.op = Op::acquire_all,
     .name = "acquire_all",
     .kind = Class::memory,
     .operands = {any_type(out("instances", nothing))},
     .takes = {1, true}},
    {.op = Op::release_all,
     .name = "release_all",
     .kind = Class::memory,
     .operands = {any_type(in("instances", nothing))},
     .takes = {-1, true}},

    // This rank's next micro-batch.
    {.op = Op::load_batch,
     .name = "load_batch",
     .kind = Class::input,
     .dims = {"tokens"},
     .operands = {indices(out("tokens", first)), indices(out("targets", first))}},
    {.op = Op::fill_zero,
     .name = "fill_zero",
     .kind = Class::kernel,
     .cost = Cost::streaming,
     .dims = {"elements"},
     .operands = {any_type(out("out", first))}},
    {.op = Op::copy,
     .name = "copy",
     .kind = Class::kernel,
     .cost = Cost::streaming,
     .dims = {"elements"},
     .operands = {any_type(in("from", first)), any_type(out("to", first))}},
    {.op = Op::accumulate,
     .name = "accumulate",
     .kind = Class::kernel,
     .cost = Cost::streaming,
     .dims = {"elements"},
     .operands = {in("from", first), io("to", first)}},
    {.op = Op::copy_to_host,
     .name = "copy_to_host",
     .kind = Class::to_host,
     .cost = Cost::streaming,
     .dims = {"elements"},
     .operands = {any_type(in("from", first)), any_type(out("to", first))}},
    {.op = Op::copy_to_device,
     .name = "copy_to_device",
     .kind = Class::to_device,
     .cost = Cost::streaming,
     .dims = {"elements"},
     .operands = {any_type(in("from", first)), any_type(out("to", first))}},
    // The sum is made on the host.
    {.op = Op::accumulate_host,
     .name = "accumulate_host",
     .kind = Class::to_host,
     .cost = Cost::streaming,
     .dims = {"elements"},
     .operands = {in("from", first), io("to", first)}},

    // Tokens outside the rows, and positions where the first row is not 0, are left to the other
    // tensor-parallel ranks. Without a table the positions are added to out.
    {.op = Op::embedding_forward,
     .name = "embedding_forward",
     .kind = Class::kernel,
     .cost = Cost::streaming,
     .dims = {"tokens", "width", "rows", "first row"},
     .operands = {indices(small(in("tokens", first))),
                  optional(moves(first_second, in("table", second_third))),
                  optional(small(in("positions", positions))), out("out", first_second)},
     .extra = Extra::sequence},
    // Where heads is not 0, rows are so many heads of each token, which begin at the first column of the token's row
    // in x and y. Parameters are the weight and, behind it, the bias if there is one.
    {.op = Op::norm_forward,
     .name = "norm_forward",
     .kind = Class::kernel,
     .cost = Cost::streaming,
     .dims = {"rows", "width", "heads", "first column"},
     .operands = {in("x", first_second), small(in("parameters", second)), out("y", first_second),
                  fp32(small(out("statistics", first)))}},
    // y = x W^T + b: m tokens, n outputs, k inputs; weights are stored {outputs, inputs} row by row.
    {.op = Op::matmul,
     .name = "matmul",
     .kind = Class::kernel,
     .cost = Cost::linear_product,
     .dims = {"m", "n", "k"},
     .operands = {in("x", first_third), in("weight", second_third), optional(small(in("bias", second))),
                  out("y", first_second)},
     .products = {.executed = 1, .needed = 1}},
    // Turns queries and keys by the constants' rotary.
    {.op = Op::rotary_forward,
     .name = "rotary_forward",
     .kind = Class::kernel,
     .cost = Cost::elementwise,
     .dims = {"tokens", "heads", "head_dim"},
     .operands = {io("query and key", three)},
     .extra = Extra::sequence},
    // Causal; scores are scaled, capped, biased and windowed as the constants say.
    {.op = Op::attention_forward,
     .name = "attention_forward",
     .kind = Class::kernel,
     .cost = Cost::fused_attention,
     .dims = kAttentionDims,
     .operands = {in("qkv", packed), optional(in("normed", query_key)), out("y", context),
                  fp32(small(out("log-sum-exp", head_rows)))},
     .products = {.executed = 2, .needed = 2},
     .extra = Extra::key_value_heads},
    {.op = Op::attention_scores,
     .name = "attention_scores",
     .kind = Class::kernel,
     .cost = Cost::attention_product,
     .dims = kAttentionDims,
     .operands = {in("qkv", packed), optional(in("normed", query_key)), out("scores", squares)},
     .products = {.executed = 1, .needed = 1, .to_scores = 1},
     .extra = Extra::key_value_heads},
    {.op = Op::softmax_forward,
     .name = "softmax_forward",
     .kind = Class::kernel,
     .cost = Cost::softmax,
     .dims = {"rows", "width"},
     .operands = {in("scores", first_second), out("probabilities", first_second)}},
    // Where several ranks divide the mask, each has so many parts of it: those of all ranks follow each other, then the
    // next ones. Without ranks, every rank has the whole mask.
    {.op = Op::dropout_forward,
     .name = "dropout_forward",
     .kind = Class::kernel,
     .cost = Cost::elementwise,
     .dims = {"elements", "part", "ranks", "rank"},
     .operands = {in("x", first), bytes(out("mask", first)), out("y", first)}},
    {.op = Op::attention_values,
     .name = "attention_values",
     .kind = Class::kernel,
     .cost = Cost::attention_product,
     .dims = kAttentionDims,
     .operands = {in("probabilities", squares), in("qkv", packed), out("y", context)},
     .products = {.executed = 1, .needed = 1, .from_scores = 1},
     .extra = Extra::key_value_heads},
    // The pre-activation is twice as wide where the kind is gated.
    {.op = Op::activation_forward,
     .name = "activation_forward",
     .kind = Class::kernel,
     .cost = Cost::elementwise,
     .dims = {"tokens", "width"},
     .operands = {in("pre-activation", pre_activation), out("y", first_second)},
     .extra = Extra::activation_kind},
    {.op = Op::residual_add,
     .name = "residual_add",
     .kind = Class::kernel,
     .cost = Cost::streaming,
     .dims = {"tokens", "hidden"},
     .operands = {in("branch", first_second), optional(small(in("bias", second))),
                  in("residual", first_second), optional(bytes(out("mask", first_second))),
                  out("out", first_second)}},
    // Logits are capped where the model caps them; some columns are padding of the vocabulary.
    {.op = Op::cross_entropy_maximum,
     .name = "cross_entropy_maximum",
     .kind = Class::kernel,
     .cost = Cost::loss,
     .dims = kLogitDims,
     .operands = {mostly_once(io("logits", first_second)), fp32(small(out("maximum", first)))}},
    // The sums are {sum of exponentials, target logit} of each token.
    {.op = Op::cross_entropy_exponent,
     .name = "cross_entropy_exponent",
     .kind = Class::kernel,
     .cost = Cost::loss,
     .dims = kLogitDims,
     .operands = {in("logits", first_second), indices(small(in("targets", first))),
                  fp32(small(in("maximum", first))), fp32(small(out("sums", twice_first)))}},
    {.op = Op::cross_entropy_loss,
     .name = "cross_entropy_loss",
     .kind = Class::kernel,
     .dims = {"tokens"},
     .operands = {fp32(in("maximum", first)), fp32(in("sums", twice_first)), fp32(io("scalars", scalars))}},
    {.op = Op::route_tokens,
     .name = "route_tokens",
     .kind = Class::kernel,
     .dims = kRoutingDims,
     .operands = {in("router logits", first_second), in("x", first_fourth), out("x by expert", routed)}},
    {.op = Op::combine_tokens,
     .name = "combine_tokens",
     .kind = Class::kernel,
     .dims = kRoutingDims,
     .operands = {in("router logits", first_second), in("expert outputs", routed),
                  optional(in("shared output", first_fourth)), out("y", first_fourth)}},

    // Backward. Gradients of inputs are added to, or set with kOverwrite; of parameters they are always added to.
    {.op = Op::cross_entropy_backward,
     .name = "cross_entropy_backward",
     .kind = Class::kernel,
     .cost = Cost::loss,
     .dims = kLogitDims,
     .operands = {in("logits", first_second), indices(small(in("targets", first))),
                  fp32(small(in("maximum", first))), fp32(small(in("sums", twice_first))),
                  fp32(small(in("scalars", scalars))), out("d logits", first_second)}},
    {.op = Op::matmul_input_gradient,
     .name = "matmul_input_gradient",
     .kind = Class::kernel,
     .cost = Cost::linear_product,
     .dims = {"m", "n", "k"},
     .operands = {in("dy", first_second), in("weight", second_third), io("dx", first_third)},
     .products = {.executed = 1, .needed = 1, .inner = 1}},
    {.op = Op::matmul_weight_gradient,
     .name = "matmul_weight_gradient",
     .kind = Class::kernel,
     .cost = Cost::linear_product,
     .dims = {"m", "n", "k"},
     .operands = {in("dy", first_second), in("x", first_third), io("dW", second_third),
                  optional(small(io("db", second)))},
     .products = {.executed = 1, .needed = 1, .inner = 0}},
    {.op = Op::residual_backward,
     .name = "residual_backward",
     .kind = Class::kernel,
     .cost = Cost::streaming,
     .dims = {"tokens", "hidden"},
     .operands = {in("dy", first_second), bytes(in("mask", first_second)), out("d branch", first_second)}},
    // The gradient may stand where the pre-activation does.
    {.op = Op::activation_backward,
     .name = "activation_backward",
     .kind = Class::kernel,
     .cost = Cost::elementwise,
     .dims = {"tokens", "width"},
     .operands = {in("dy", first_second), in("pre-activation", pre_activation),
                  out("d pre-activation", pre_activation)},
     .extra = Extra::activation_kind},
    // fp32 sums of dy * y over a head.
    {.op = Op::attention_row_dot,
     .name = "attention_row_dot",
     .kind = Class::kernel,
     .dims = kAttentionDims,
     .operands = {in("dy", context), in("y", context), fp32(out("row sums", head_rows))},
     .extra = Extra::key_value_heads},
    // Makes the scores a second time, which a flash backward executes and a model does not need.
    {.op = Op::attention_backward,
     .name = "attention_backward",
     .kind = Class::kernel,
     .cost = Cost::fused_attention,
     .dims = kAttentionDims,
     .operands = {in("dy", context), in("qkv", packed), optional(in("normed", query_key)),
                  fp32(small(in("log-sum-exp", head_rows))), fp32(small(in("row sums", head_rows))),
                  out("dqkv", packed)},
     .products = {.executed = 5, .needed = 4},
     .extra = Extra::key_value_heads},
    // Writes the value part of dqkv.
    {.op = Op::attention_values_backward,
     .name = "attention_values_backward",
     .kind = Class::kernel,
     .cost = Cost::attention_product,
     .dims = kAttentionDims,
     .operands = {in("dy", context), in("probabilities", squares), in("qkv", packed),
                  out("d probabilities", squares), io("dqkv", packed)},
     .products = {.executed = 2, .needed = 2, .to_scores = 1, .from_scores = 1},
     .extra = Extra::key_value_heads},
    {.op = Op::dropout_backward,
     .name = "dropout_backward",
     .kind = Class::kernel,
     .cost = Cost::elementwise,
     .dims = {"elements"},
     .operands = {bytes(in("mask", first)), io("dy", first)}},
    {.op = Op::softmax_backward,
     .name = "softmax_backward",
     .kind = Class::kernel,
     .cost = Cost::softmax,
     .dims = {"rows", "width"},
     .operands = {in("probabilities", first_second), io("d scores", first_second)}},
    // Writes the query and key parts of dqkv. Capped scores are made once more, in their gradient's place.
    {.op = Op::attention_scores_backward,
     .name = "attention_scores_backward",
     .kind = Class::kernel,
     .cost = Cost::attention_product,
     .dims = kAttentionDims,
     .operands = {io("d scores", squares), in("qkv", packed), optional(in("normed", query_key)),
                  io("dqkv", packed)},
     .products = {.executed = 2, .needed = 2, .from_scores = 2, .to_capped_scores = 1},
     .extra = Extra::key_value_heads},
    {.op = Op::rotary_backward,
     .name = "rotary_backward",
     .kind = Class::kernel,
     .cost = Cost::elementwise,
     .dims = {"tokens", "heads", "head_dim"},
     .operands = {io("d query and key", three)},
     .extra = Extra::sequence},
    {.op = Op::norm_backward,
     .name = "norm_backward",
     .kind = Class::kernel,
     .cost = Cost::streaming,
     .dims = {"rows", "width", "heads", "first column"},
     .operands = {in("dy", first_second), in("x", first_second), small(in("parameters", second)),
                  fp32(small(in("statistics", first))), io("dx", first_second),
                  small(io("d parameters", second))}},
    {.op = Op::embedding_backward,
     .name = "embedding_backward",
     .kind = Class::kernel,
     .cost = Cost::streaming,
     .dims = {"tokens", "width", "rows", "first row"},
     .operands = {in("dx", first_second), indices(small(in("tokens", first))),
                  optional(moves(first_second, io("d table", second_third))),
                  optional(small(io("d positions", positions)))},
     .extra = Extra::sequence},
    {.op = Op::combine_backward,
     .name = "combine_backward",
     .kind = Class::kernel,
     .dims = kRoutingDims,
     .operands = {in("dy", first_fourth), in("router logits", first_second), in("expert outputs", routed),
                  out("d expert outputs", routed), out("d router logits", first_second)}},
    {.op = Op::route_backward,
     .name = "route_backward",
     .kind = Class::kernel,
     .dims = kRoutingDims,
     .operands = {in("d x by expert", routed), io("dx", first_fourth)}},

    // Only `distinct` elements are held by this tensor-parallel rank alone. Scalars: overflow, norm parts.
    {.op = Op::gradient_norm,
     .name = "gradient_norm",
     .kind = Class::kernel,
     .cost = Cost::streaming,
     .dims = {"elements", "distinct"},
     .operands = {in("gradient", first), fp32(small(io("scalars", scalars)))}},
    // Unscaled and clipped, the chunk from iteration * chunk on.
    {.op = Op::gradient_to_fp32,
     .name = "gradient_to_fp32",
     .kind = Class::kernel,
     .cost = Cost::streaming,
     .dims = {"elements", "chunk"},
     .operands = {moves(chunk, in("gradient", chunk_end)), fp32(small(in("scalars", scalars))),
                  out("fp32 gradient", chunk)}},
    // Extra is the number of its unit in StepProgram::units from 1, or 0. Without a master the parameter is its own, and read.
    {.op = Op::optimizer_update,
     .name = "optimizer_update",
     .kind = Class::kernel,
     .cost = Cost::streaming,
     .dims = {"elements", "chunk"},
     .operands = {in("gradient", chunk), optional(moves(chunk, io("master", chunk_end))),
                  moves(chunk, mostly_once(io("parameter", chunk_end))),
                  optional(moves(chunk, io("first state", chunk_end))),
                  optional(moves(chunk, io("second state", chunk_end))),
                  optional(moves(chunk, io("third state", chunk_end)))},
     .extra = Extra::unit},
    // Squared norm, loss scale, step count.
    {.op = Op::scale_update,
     .name = "scale_update",
     .kind = Class::kernel,
     .operands = {fp32(io("scalars", scalars))}},

    {.op = Op::all_reduce,
     .name = "all_reduce",
     .kind = Class::collective,
     .dims = {"elements"},
     .operands = {io("whole", first)},
     .ring = {.passes = 2}},
    // Its own partition becomes the sum.
    {.op = Op::reduce_scatter,
     .name = "reduce_scatter",
     .kind = Class::collective,
     .dims = {"elements"},
     .operands = {io("whole", first)},
     .ring = {.passes = 1}},
    // The partition may be its place in the whole.
    {.op = Op::all_gather,
     .name = "all_gather",
     .kind = Class::collective,
     .dims = {"elements"},
     .operands = {in("own", nothing), out("whole", first)},
     .ring = {.passes = 1}},
    {.op = Op::broadcast,
     .name = "broadcast",
     .kind = Class::collective,
     .dims = {"elements"},
     .operands = {io("whole", first)},
     .ring = {.passes = 1, .divides = false}},
}};
static_assert(rows_are_in_order(kInstructions));

constexpr const InstructionRow& row_of(Op op) { return kInstructions[static_cast<std::size_t>(op)]; }

// What readers ask of every instruction of a program, apart from what they ask of few.
inline constexpr std::array<Class, kOps> kClasses = [] {
  std::array<Class, kOps> classes{};
  std::transform(kInstructions.begin(), kInstructions.end(), classes.begin(),
                 [](const InstructionRow& row) { return row.kind; });
  return classes;
}();
constexpr Class class_of(Op op) { return kClasses[static_cast<std::size_t>(op)]; }

constexpr bool is_collective(Op op) { return class_of(op) == Class::collective; }
constexpr bool is_host_copy(Op op) {
  return class_of(op) == Class::to_host || class_of(op) == Class::to_device;
}
constexpr bool is_memory(Op op) { return class_of(op) == Class::memory; }
constexpr bool is_acquire(Op op) { return is_memory(op) && row_of(op).operands[0].role == Role::out; }
// Whether a device executes it: kernels and copies to and from the host.
constexpr bool is_executed_by_device(Op op) { return class_of(op) == Class::kernel || is_host_copy(op); }
constexpr bool takes_time(Op op) { return is_executed_by_device(op) || is_collective(op); }
constexpr bool has_activation_kind(Op op) { return row_of(op).extra == Extra::activation_kind; }
// Whether something is done with operands: all but structure and memory.
constexpr bool is_executed(Op op) { return takes_time(op) || class_of(op) == Class::input; }
constexpr bool is_linear_product(Op op) { return row_of(op).cost == Cost::linear_product; }

// How many instances of a buffer that has `instances` of them a memory instruction takes; negative where it gives back.
constexpr std::int64_t instances_taken(Op op, std::int64_t instances) {
  const Takes takes = row_of(op).takes;
  return takes.sign * (takes.every_instance ? instances : 1);
}

// The collectives, in the order of Op.
inline constexpr std::size_t kCollectives = std::count(kClasses.begin(), kClasses.end(), Class::collective);
inline constexpr std::array<Op, kCollectives> kCollectiveOps = [] {
  std::array<Op, kCollectives> ops{};
  std::size_t found = 0;
  for (const InstructionRow& row : kInstructions) {
    if (row.kind == Class::collective) ops[found++] = row.op;
  }
  return ops;
}();
// Of a collective, among kCollectiveOps.
constexpr std::size_t collective_index(Op op) {
  return static_cast<std::size_t>(op) - static_cast<std::size_t>(kCollectiveOps.front());
}
static_assert(collective_index(kCollectiveOps.back()) == kCollectives - 1);

// Of a whole vector of so many bytes (or of 1, for the share), what each of n ranks sends over a ring
// (docs/equations.md, "Collectives").
constexpr double sent_over_ring(Op collective, double whole, double n) {
  const Ring ring = row_of(collective).ring;
  return ring.divides ? ring.passes * whole * (n - 1) / n : ring.passes * whole;
}

// The number of operands that the row has.
constexpr std::size_t operands_of(Op op) {
  const auto& operands = row_of(op).operands;
  return static_cast<std::size_t>(std::count_if(
      operands.begin(), operands.end(), [](const OperandRow& one) { return one.role != Role::none; }));
}
// The operand of a collective that is the whole vector: its last.
constexpr std::size_t whole_operand(Op collective) { return operands_of(collective) - 1; }

// The operand that is a mask of dropout which the instruction draws; kMaxOperands for those that draw none. It is absent
// where an instruction that may have a mask has none.
inline constexpr std::array<std::size_t, kOps> kDrawnMasks = [] {
  std::array<std::size_t, kOps> masks{};
  std::transform(kInstructions.begin(), kInstructions.end(), masks.begin(), [](const InstructionRow& row) {
    const auto found = std::find_if(row.operands.begin(), row.operands.end(), [](const OperandRow& one) {
      return one.role == Role::out && one.types == Types::bytes;
    });
    return found == row.operands.end() ? kMaxOperands
                                       : static_cast<std::size_t>(found - row.operands.begin());
  });
  return masks;
}();
constexpr std::size_t drawn_mask(Op op) { return kDrawnMasks[static_cast<std::size_t>(op)]; }

}  // namespace zeroplan::program
