#pragma once

#include <vector>

#include "planner/program/block.hpp"
#include "planner/program/zero_policy.hpp"

namespace zeroplan::program {

// All layers of a model, forward and backward, in one of two ways:
//
//   activations kept   block_input[l] and what each layer keeps pile up in forward and are taken down in
//                      backward
//   full recompute     one `stream` runs through the layers in place; every checkpoint_interval layers its
//                      value is put aside as a checkpoint: whole, one tensor-parallel part of it (P_a, Section 6.1 of the
//                      ZeRO paper), or that part in host memory (P_a+cpu). Backward restores a checkpoint,
//                      runs its layers once more keeping activations, then backward through them.
class LayerStack {
 public:
  LayerStack(Builder& builder, ZeroPolicy& zero, const describe::Model& model, const describe::Plan& plan,
             const Shapes& shapes, const std::vector<Unit>& units);

  // What lives at the bottom of a micro-batch's stack: the stream, or the gradient of the residual stream.
  void begin() { builder_.acquire(at(bottom_)); }
  void end() { builder_.release(at(bottom_)); }
  // Where the embedding writes; acquired here when it is not the stream.
  Operand acquire_input();
  void forward();
  // Where the last layer's output stands after forward().
  Operand output() const;
  // Becomes the gradient of output(), is the gradient of the input after backward().
  Operand gradient() const { return at(bottom_); }
  // Releases the output, all that layers kept, and the input.
  void backward(bool last);

 private:
  struct Alike {
    const Unit* unit = nullptr;
    Block block;
    BufferId checkpoint = kNoBuffer;
  };

  // `body` over all layers of a alike; at stage 3 with their weights gathered, one layer ahead where the ring
  // has room.
  template <class Body>
  void over_layers(const Unit& unit, bool reverse, Body&& body);
  void backward_layer(Alike& alike, bool last);
  void forward_blocks(Alike& alike);
  void backward_blocks(Alike& alike, bool last);
  void backward_block(Alike& alike, std::int64_t layers, bool last);
  void save_checkpoint(const Alike& alike);
  void restore_checkpoint(const Alike& alike);

  Builder& builder_;
  ZeroPolicy& zero_;
  const describe::Plan& plan_;
  Shapes shapes_;
  bool recompute_;
  std::int64_t interval_;
  std::int64_t layers_;
  Elements plane_;  // tokens x hidden
  Elements part_;   // of a checkpoint that this rank keeps
  BufferId bottom_, block_input_, own_part_, own_input_part_;
  std::vector<Alike> stacked_;
};

}  // namespace zeroplan::program
