#pragma once

#include "planner/program/attention.hpp"
#include "planner/program/mlp.hpp"

namespace zeroplan::program {

// One transformer layer: x + attention(norm(x)), then + MLP(norm(.)); or both from the same x (a parallel
// block).
class Block {
 public:
  Block(Builder& builder, const describe::Model& model, const describe::Plan& plan, const Shapes& shapes,
        const Unit& unit, Instances instances);

  // `out` may be `in` when nothing is kept; it is acquired here, last of all, when activations are kept.
  void forward(Keep keep, Operand in, Operand out);
  // `gradient` holds d out and becomes d in. Releases what forward kept, without `out`.
  void backward(Operand in, Operand gradient);

 private:
  Builder& builder_;
  Shapes shapes_;
  bool parallel_;
  Attention attention_;
  Mlp mlp_;
  BufferId middle_;          // x + attention
  BufferId block_gradient_;  // parallel: d out while `gradient` is added to
};

}  // namespace zeroplan::program
