#pragma once

#include "planner/program/shapes.hpp"
#include "planner/program/zero_policy.hpp"

namespace zeroplan::program {

// What a micro-batch reads and what the loss needs.
struct MicroBatch {
  BufferId tokens = kNoBuffer;
  BufferId targets = kNoBuffer;
  BufferId scalars = kNoBuffer;
};

// Token and position embeddings; the vocabulary is divided over tensor-parallel ranks, whose sum is the
// embedding (position rows are added on the first of them).
class Embedding {
 public:
  Embedding(Builder& builder, ZeroPolicy& zero, const Shapes& shapes, const Unit& unit);

  // Acquires the dropout mask if there is one. Before `out` is acquired.
  void acquire_mask() { builder_.acquire(at(mask_)); }
  void release_mask() { builder_.release(at(mask_)); }
  void forward(const MicroBatch& batch, Operand out);
  void backward(const MicroBatch& batch, Operand gradient, bool last);

  BufferId table() const { return table_; }
  BufferId table_gradient() const { return table_gradient_; }
  std::int64_t width() const { return width_; }

 private:
  Builder& builder_;
  ZeroPolicy& zero_;
  Shapes shapes_;
  const Unit& unit_;
  std::int64_t width_ = 0, rows_ = 0, first_row_ = 0;
  BufferId table_ = kNoBuffer, table_gradient_ = kNoBuffer, positions_ = kNoBuffer,
           positions_gradient_ = kNoBuffer;
  BufferId mask_ = kNoBuffer;
};

// Final norm, logits over this rank's part of the vocabulary, and the cross-entropy over all of it
// (Megatron-LM, arXiv 1909.08053, Section 3: per token only the maximum, the sum of exponentials and the
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
  Linear logits_linear_;
  std::int64_t first_column_ = 0, vocabulary_columns_ = 0;
  BufferId normed_, statistics_, maximum_, sums_, logits_, logits_copies_, logits_gradient_, normed_gradient_;
};

}  // namespace zeroplan::program
