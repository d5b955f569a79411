#pragma once

#include "planner/program/builder.hpp"
#include "planner/program/parameters.hpp"
#include "planner/program/shapes.hpp"

// What several parts of a layer emit alike.
namespace zeroplan::program {

// A layer is emitted in two ways: keeping what its backward needs (on the stack, released by backward), or
// leaving nothing behind but its output (forward under full recomputation).
enum class Keep { activations, nothing };

// The three products of a linear layer over m rows.
void emit_linear(Builder& builder, const Linear& linear, std::int64_t m, Operand x, Operand y,
                 bool with_bias = true);
void emit_weight_gradient(Builder& builder, const Linear& linear, std::int64_t m, Operand dy, Operand x);
void emit_input_gradient(Builder& builder, const Linear& linear, std::int64_t m, Operand dy, Operand dx,
                         bool overwrite = true);

// Backward of a linear layer whose outputs are divided over tensor-parallel ranks: both gradients, and the
// sum of the input's over the ranks. Where the engine does so, that sum is on its way while the weight's is
// computed: on Stream::tensor.
void emit_column_backward(Builder& builder, const Shapes& shapes, const Linear& linear, std::int64_t m,
                          Operand dy, Operand x, Operand dx);

void emit_norm(Builder& builder, const NormParameters& norm, std::int64_t rows, Operand x, Operand y,
               Operand statistics);
void emit_norm_backward(Builder& builder, const NormParameters& norm, std::int64_t rows, Operand dy,
                        Operand x, Operand statistics, Operand dx, bool overwrite);

// The sum over tensor-parallel ranks of a tokens x hidden tensor, or of one of tokens x `width`.
void emit_tensor_all_reduce(Builder& builder, const Shapes& shapes, Operand operand);
void emit_tensor_all_reduce(Builder& builder, const Shapes& shapes, Operand operand, std::int64_t width,
                            Stream stream = Stream::compute);

}  // namespace zeroplan::program
