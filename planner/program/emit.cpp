#include "planner/program/emit.hpp"

namespace zeroplan::program {

void emit_linear(Builder& builder, const Linear& linear, std::int64_t m, Operand x, Operand y,
                 bool with_bias) {
  builder.emit(Op::matmul, {m, linear.outputs, linear.inputs},
               {x, at(linear.weight), at(with_bias ? linear.bias : kNoBuffer), y});
}

void emit_weight_gradient(Builder& builder, const Linear& linear, std::int64_t m, Operand dy, Operand x) {
  builder.emit(Op::matmul_weight_gradient, {m, linear.outputs, linear.inputs},
               {dy, x, at(linear.weight_gradient), at(linear.bias_gradient)});
}

void emit_input_gradient(Builder& builder, const Linear& linear, std::int64_t m, Operand dy, Operand dx,
                         bool overwrite) {
  Instruction& instruction = builder.emit(Op::matmul_input_gradient, {m, linear.outputs, linear.inputs},
                                          {dy, at(linear.weight), dx});
  if (overwrite) instruction.flags |= kOverwrite;
}

void emit_column_backward(Builder& builder, const Shapes& shapes, const Linear& linear, std::int64_t m,
                          Operand dy, Operand x, Operand dx) {
  if (!shapes.sum_beside_weight_gradient) {
    emit_weight_gradient(builder, linear, m, dy, x);
    emit_input_gradient(builder, linear, m, dy, dx);
    emit_tensor_all_reduce(builder, shapes, dx, linear.inputs);
    return;
  }
  emit_input_gradient(builder, linear, m, dy, dx);
  emit_tensor_all_reduce(builder, shapes, dx, linear.inputs, Stream::tensor);
  emit_weight_gradient(builder, linear, m, dy, x);
}

void emit_norm(Builder& builder, const NormParameters& norm, std::int64_t rows, Operand x, Operand y,
               Operand statistics) {
  builder.emit(Op::norm_forward, {rows, norm.width}, {x, at(norm.parameters), y, statistics});
}

void emit_norm_backward(Builder& builder, const NormParameters& norm, std::int64_t rows, Operand dy,
                        Operand x, Operand statistics, Operand dx, bool overwrite) {
  Instruction& instruction = builder.emit(Op::norm_backward, {rows, norm.width},
                                          {dy, x, at(norm.parameters), statistics, dx, at(norm.gradient)});
  if (overwrite) instruction.flags |= kOverwrite;
}

void emit_tensor_all_reduce(Builder& builder, const Shapes& shapes, Operand operand) {
  emit_tensor_all_reduce(builder, shapes, operand, shapes.hidden);
}

void emit_tensor_all_reduce(Builder& builder, const Shapes& shapes, Operand operand, std::int64_t width,
                            Stream stream) {
  builder.tensor_collective(Op::all_reduce, shapes.tokens * width, {operand}, 0, stream);
}

}  // namespace zeroplan::program
