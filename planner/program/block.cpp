#include "planner/program/block.hpp"

namespace zeroplan::program {

Block::Block(Builder& builder, const describe::Model& model, const describe::Plan& plan, const Shapes& shapes,
             const Unit& unit, Instances instances)
    : builder_(builder),
      shapes_(shapes),
      parallel_(model.parallel_block),
      attention_(builder, model, plan, shapes, unit, instances),
      mlp_(builder, model, plan, shapes, unit, instances),
      middle_(builder.buffer("attention_residual", shapes.compute, Category::activation,
                             shapes.tokens * shapes.hidden, instances)),
      block_gradient_(parallel_ ? builder.buffer("block_gradient", shapes.compute, Category::activation,
                                                 shapes.tokens * shapes.hidden)
                                : kNoBuffer) {}

void Block::forward(Keep keep, Operand in, Operand out) {
  const bool separate = parallel_ || keep == Keep::activations;
  const Operand middle = separate ? at(middle_) : out;
  if (parallel_) builder_.acquire(middle);
  attention_.forward(keep, in, middle, separate && !parallel_);
  mlp_.forward(keep, parallel_ ? in : middle, middle, out, keep == Keep::activations);
  if (parallel_ && keep == Keep::nothing) builder_.release(middle);
}

void Block::backward(Operand in, Operand gradient) {
  const Operand middle = at(middle_);
  if (!parallel_) {
    mlp_.backward(middle, gradient, gradient);
    builder_.release(middle);
    attention_.backward(in, gradient, gradient);
    return;
  }
  // The copy of d out lives above everything the layer kept, which is released only after it.
  const Operand copy = at(block_gradient_);
  builder_.acquire(copy);
  builder_.emit(Op::copy, {shapes_.tokens * shapes_.hidden}, {gradient, copy});
  mlp_.compute_backward(in, copy, gradient);
  attention_.compute_backward(in, copy, gradient);
  builder_.release(copy);
  mlp_.release_kept();
  attention_.release_kept();
  builder_.release(middle);
}

}  // namespace zeroplan::program
