#pragma once

#include "planner/program/emit.hpp"
#include "planner/program/zero_policy.hpp"

namespace zeroplan::program {

// What a micro-batch reads and what the loss needs.
struct MicroBatch {
  BufferId tokens = kNoBuffer;
  BufferId targets = kNoBuffer;
  BufferId scalars = kNoBuffer;
};

// Token and position embeddings; the vocabulary is divided over tensor-parallel ranks, whose sum is the
// embedding (position rows are added on the first of them). A table narrower than the model is looked up into
// a buffer of its own, from which a projection makes the embedding; positions are added behind it.
class Embedding {
 public:
  Embedding(Builder& builder, ZeroPolicy& zero, const Shapes& shapes, const Unit& unit);

  // Acquires what backward needs: the dropout mask and the rows before a projection. Before `out` is acquired.
  void acquire_kept();
  void release_kept();
  void forward(const MicroBatch& batch, Operand out);
  void backward(const MicroBatch& batch, Operand gradient, bool last);

  BufferId table() const { return table_; }
  BufferId table_gradient() const { return table_gradient_; }
  std::int64_t width() const { return width_; }

 private:
  bool is_projected() const { return narrow_ != kNoBuffer; }
  void look_up(const MicroBatch& batch, Operand out);
  void add_positions(const MicroBatch& batch, Operand out);
  void project_backward(const MicroBatch& batch, Operand gradient);

  Builder& builder_;
  ZeroPolicy& zero_;
  Shapes shapes_;
  const Unit& unit_;
  Linear projection_;
  std::int64_t width_ = 0, rows_ = 0, first_row_ = 0;
  BufferId table_ = kNoBuffer, table_gradient_ = kNoBuffer, positions_ = kNoBuffer,
           positions_gradient_ = kNoBuffer;
  BufferId mask_ = kNoBuffer, narrow_ = kNoBuffer, narrow_gradient_ = kNoBuffer;
};

}  // namespace zeroplan::program
