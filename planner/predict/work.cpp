#include "planner/predict/work.hpp"

#include "planner/instructions/table.hpp"
#include "planner/predict/repetition.hpp"

namespace zeroplan::predict {

namespace {

using program::AttentionWindow;
using program::Cost;
using program::Instruction;
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

namespace {

// One of the instruction's products, over what a fused kernel sees of it.
Flops one_product(const StepProgram& program, const Instruction& instruction) {
  switch (program::row_of(instruction.op).cost) {
    case Cost::linear_product:
      return product(instruction);
    case Cost::fused_attention:
      return square_product(instruction) * visible_share(program, instruction);
    default:
      return square_product(instruction);
  }
}

}  // namespace

Flops executed_flops(const StepProgram& program, const Instruction& instruction) {
  const program::InstructionRow& row = program::row_of(instruction.op);
  int products = row.products.executed;
  if (products == 0) return 0;
  if (program.constants.attention_soft_cap > 0) products += row.products.to_capped_scores;
  return products * one_product(program, instruction);
}

// What is needed of attention is what its windows see, also where kernels that keep scores compute whole squares.
Flops needed_flops(const StepProgram& program, const Instruction& instruction) {
  if ((instruction.flags & program::kRecomputed) != 0) return 0;
  const program::InstructionRow& row = program::row_of(instruction.op);
  if (row.products.needed == 0) return 0;
  const bool in_windows = row.cost == Cost::attention_product;  // one_product() has the others' windows
  const double share = in_windows ? visible_share(program, instruction) : 1;
  return row.products.needed * share * one_product(program, instruction);
}

Work read_work(const program::StepProgram& program) {
  Work work;
  for_each_repeated(program, [&](const Instruction& instruction, program::Phase, double times) {
    const Flops executed = executed_flops(program, instruction);
    if (executed == 0) return;
    const Flops needed = needed_flops(program, instruction);
    work.hardware += times * executed;
    work.model += times * needed;
    if (program::is_linear_product(instruction.op)) return;
    work.attention += times * executed;
    work.model_attention += times * needed;
  });
  const double ranks = static_cast<double>(program.ranks);
  work.hardware_all_ranks = ranks * work.hardware;
  work.model_all_ranks = ranks * work.model;
  return work;
}

}  // namespace zeroplan::predict
