#pragma once

#include "planner/program/emit.hpp"

namespace zeroplan::program {

// Whether a layer's norms stand on its branches and nowhere else (OLMo 2).
inline bool norms_on_branch(const describe::Model& model) {
  return model.norm_placement == describe::NormPlacement::branch;
}

// What half a layer adds to the residual stream: the output of its last product, summed over tensor-parallel
// ranks, normed in models that norm after too (Gemma 2), with bias and dropout.
class Branch {
 public:
  struct Names {
    std::string_view branch, statistics, mask, gradient;
  };
  Branch(Builder& builder, const Shapes& shapes, const NormParameters& norm, const Names& names,
         Instances instances);

  // Acquires what forward needs of its own; with activations kept, all of it is.
  void acquire(Keep keep, Scope& scope) const;
  // Where the product writes: where the sum will stand, if it may.
  Operand product(Keep keep, Operand out) const;
  // out = residual + branch.
  void add(Keep keep, BufferId bias, Operand residual, Operand out) const;

  // Backward's scratch, absent where the product's gradient is `dy` itself.
  Operand gradient() const { return at(gradient_); }
  // The gradient of the product's output, given `dy` = d out. Requires gradient() to be held.
  Operand backward(Operand dy) const;

  bool is_normed() const { return norm_.parameters != kNoBuffer; }

 private:
  bool direct(Keep keep) const { return keep == Keep::activations && !is_normed(); }

  Builder& builder_;
  Shapes shapes_;
  NormParameters norm_;
  BufferId branch_, statistics_, mask_, gradient_;
};

}  // namespace zeroplan::program
