#include "planner/predict/work.hpp"

#include "planner/predict/repetition.hpp"

namespace zeroplan::predict {

namespace {

using program::AttentionWindow;
using program::Instruction;
using program::Op;
using program::StepProgram;

// One s x s product of attention over all sequences and heads: 2 b s^2 a d.
Flops square_product(const Instruction& instruction) {
  const auto [sequences, sequence, heads, head_dim] = instruction.dims;
  return 2.0 * static_cast<double>(sequences) * static_cast<double>(sequence) *
         static_cast<double>(sequence) * static_cast<double>(heads) * static_cast<double>(head_dim);
}

Flops product(const Instruction& instruction) {
  return 2.0 * static_cast<double>(instruction.dims[0]) * static_cast<double>(instruction.dims[1]) *
         static_cast<double>(instruction.dims[2]);
}

}  // namespace

double visible_share(const StepProgram& program, const Instruction& instruction) {
  const AttentionWindow& window = program.constants.window;
  if (window.kind == AttentionWindow::Kind::none) return 1;
  return window.mean_visible_share(program.layers, instruction.dims[1]);
}

bool is_linear_product(Op op) {
  return op == Op::matmul || op == Op::matmul_input_gradient || op == Op::matmul_weight_gradient;
}

Flops executed_flops(const StepProgram& program, const Instruction& instruction) {
  switch (instruction.op) {
    case Op::matmul:
    case Op::matmul_input_gradient:
    case Op::matmul_weight_gradient:
      return product(instruction);
    case Op::attention_scores:
    case Op::attention_values:
      return square_product(instruction);
    case Op::attention_values_backward:
      return 2 * square_product(instruction);
    case Op::attention_scores_backward:
      return (program.constants.attention_soft_cap > 0 ? 3 : 2) * square_product(instruction);
    case Op::attention_forward:
      return 2 * square_product(instruction) * visible_share(program, instruction);
    case Op::attention_backward:
      return 5 * square_product(instruction) * visible_share(program, instruction);
    default:
      return 0;
  }
}

// A flash backward recomputes Q K^T, and so does a backward through capped scores. Kernels that keep scores
// compute whole squares also where a window needs a part.
Flops needed_flops(const StepProgram& program, const Instruction& instruction) {
  if ((instruction.flags & program::kRecomputed) != 0) return 0;
  const Flops square = square_product(instruction) * visible_share(program, instruction);
  switch (instruction.op) {
    case Op::attention_scores:
    case Op::attention_values:
      return square;
    case Op::attention_forward:
    case Op::attention_values_backward:
    case Op::attention_scores_backward:
      return 2 * square;
    case Op::attention_backward:
      return 4 * square;
    default:
      return executed_flops(program, instruction);
  }
}

Work read_work(const program::StepProgram& program) {
  Work work;
  for_each_repeated(program, [&](const Instruction& instruction, program::Phase, double times) {
    const Flops executed = executed_flops(program, instruction);
    if (executed == 0) return;
    const Flops needed = needed_flops(program, instruction);
    work.hardware += times * executed;
    work.model += times * needed;
    if (is_linear_product(instruction.op)) return;
    work.attention += times * executed;
    work.model_attention += times * needed;
  });
  const double ranks = static_cast<double>(program.data_parallel.size * program.tensor_parallel.size);
  work.hardware_all_ranks = ranks * work.hardware;
  work.model_all_ranks = ranks * work.model;
  return work;
}

}  // namespace zeroplan::predict
