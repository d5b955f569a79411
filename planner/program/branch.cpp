#include "planner/program/branch.hpp"

namespace zeroplan::program {

Branch::Branch(Builder& builder, const Shapes& shapes, const NormParameters& norm, const Names& names,
               Instances instances)
    : builder_(builder), shapes_(shapes), norm_(norm) {
  const bool normed = norm.parameters != kNoBuffer;
  const Elements plane = shapes.tokens * shapes.hidden;
  branch_ = builder.buffer(names.branch, shapes.compute, Category::activation, plane,
                           normed ? instances : Instances{});
  statistics_ = builder.buffer(names.statistics, DataType::fp32, Category::activation,
                               normed ? shapes.tokens * shapes.norm_statistics : 0, instances);
  mask_ = builder.buffer(names.mask, DataType::uint8, Category::activation, shapes.dropout ? plane : 0,
                         instances);
  gradient_ = builder.buffer(names.gradient, shapes.compute, Category::activation,
                             shapes.dropout || normed ? plane : 0);
}

void Branch::acquire(Keep keep, Scope& scope) const {
  if (!direct(keep)) scope.acquire(at(branch_));
  scope.acquire(at(statistics_));
  scope.acquire(at(mask_));
}

Operand Branch::product(Keep keep, Operand out) const { return direct(keep) ? out : at(branch_); }

void Branch::add(Keep keep, BufferId bias, Operand residual, Operand out) const {
  Operand branch = product(keep, out);
  emit_tensor_all_reduce(builder_, shapes_, branch);
  if (norm_.parameters != kNoBuffer) {
    const Operand normed = keep == Keep::activations ? out : branch;
    emit_norm(builder_, norm_, shapes_.tokens, branch, normed, at(statistics_));
    branch = normed;
  }
  builder_.emit(Op::residual_add, {shapes_.tokens, shapes_.hidden},
                {branch, at(bias), residual, at(mask_), out});
}

Operand Branch::backward(Operand dy) const {
  if (mask_ != kNoBuffer) {
    builder_.emit(Op::residual_backward, {shapes_.tokens, shapes_.hidden}, {dy, at(mask_), at(gradient_)});
    dy = at(gradient_);
  }
  if (norm_.parameters != kNoBuffer) {
    emit_norm_backward(builder_, norm_, shapes_.tokens, dy, at(branch_), at(statistics_), at(gradient_),
                       true);
    dy = at(gradient_);
  }
  return dy;
}

}  // namespace zeroplan::program
