#pragma once

#include "planner/program/embedding.hpp"

namespace zeroplan::program {

// Final norm, a projection to a narrower table where there is one, logits over this rank's part of the vocabulary, and the
// cross-entropy over all of it (Megatron-LM, arXiv 1909.08053, Section 3: per token only the maximum, the sum of exponentials and the
// target's logit cross ranks).
class Head {
 public:
  // `tied`: the embedding's unit when the head is its table, else nullptr.
  Head(Builder& builder, ZeroPolicy& zero, const describe::Model& model, const describe::Plan& plan,
       const Shapes& shapes, const Unit& unit, const Unit* tied, const Embedding& embedding);

  void forward(const MicroBatch& batch, Operand in);
  // Sets `gradient` to d in; may be `in`.
  void backward(const MicroBatch& batch, Operand in, Operand gradient, bool last);

 private:
  void emit_cross_entropy(Op op, std::initializer_list<Operand> operands);

  Builder& builder_;
  ZeroPolicy& zero_;
  Shapes shapes_;
  const Unit& unit_;
  const Unit* tied_;
  NormParameters norm_;
  Linear logits_linear_, projection_;
  std::int64_t first_column_ = 0, vocabulary_columns_ = 0;
  BufferId normed_, statistics_, maximum_, sums_, logits_, logits_copies_, logits_gradient_, normed_gradient_;
  BufferId projected_ = kNoBuffer, projected_gradient_ = kNoBuffer;
};

}  // namespace zeroplan::program
