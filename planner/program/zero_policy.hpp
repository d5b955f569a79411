#pragma once

#include <vector>

#include "planner/describe/plan/plan.hpp"
#include "planner/program/builder.hpp"
#include "planner/program/unit.hpp"

namespace zeroplan::program {

// What ZeRO adds to a step, at the fixed points where the compiler asks: before a unit is computed, after its
// backward, and at the optimizer step. Sections 5 and 7 of the ZeRO paper (arXiv 1910.02054):
//   stage 0              gradients are all-reduced once a step
//   stage 1  (P_os)      the optimizer state is partitioned: gradients are reduce-scattered once a step, and
//                        parameters are gathered after it
//   stage 2  (P_os+g)    gradients are partitioned too: they are reduce-scattered after each micro-batch
//   stage 3  (P_os+g+p)  parameters are partitioned too: they are gathered before each forward and backward
// with offload of optimizer state, gradients and parameters to host memory as in ZeRO-Offload (arXiv
// 2101.06840).
class ZeroPolicy {
 public:
  // Declares every buffer of the policy and sets the buffers of `units`.
  ZeroPolicy(Builder& builder, const describe::Plan& plan, std::vector<Unit>& units, bool tied_embeddings);

  // The stage that makes a difference: partitioning over one rank is none, unless something is offloaded.
  static int effective_stage(const describe::Plan& plan);

  void acquire_states();
  void zero_gradients();

  // The slots that one micro-batch uses from its start to its end.
  void begin_micro_batch();
  // Clears the slots that head and embedding both add to.
  void begin_backward();
  void end_micro_batch();

  bool gathers() const { return stage_ == 3; }
  std::int64_t prefetch_layers() const { return prefetch_; }
  // Makes the weights of layer (register + layer_offset), or of an end unit, whole. Nothing below stage 3.
  void gather(const Unit& unit, std::int16_t layer_offset = 0);

  // Buffers of the embedding's or head's whole weights and gradients, acquired around their use.
  void acquire_weights(const Unit& unit);
  void release_weights(const Unit& unit);
  void acquire_gradients(const Unit& unit);
  void release_gradients(const Unit& unit);
  // A layer's slot before its backward.
  void clear_gradients(const Unit& unit);

  // After the backward of a unit. `last`: of the last micro-batch.
  void reduce(const Unit& unit, bool last);

  void step(BufferId scalars);

 private:
  struct Parts {  // views of this rank's own part of what is whole
    BufferId parameter = kNoBuffer;
    BufferId gradient = kNoBuffer;
    BufferId weights = kNoBuffer;
    BufferId weight_gradients = kNoBuffer;
    BufferId fp32_gradient = kNoBuffer;   // persistent fp32 partition beside the 16-bit one
    BufferId fused_gradient = kNoBuffer;  // fp32 copy of the step, when it is not cut into buckets
  };

  void declare_states(Unit& unit, Parts& parts);
  void declare_slots();
  void declare_step();
  Elements whole(const Unit& unit) const;
  bool whole_at_stage_2() const;  // the engine counts whole gradients at stage 2
  bool slots_for_gradients() const;
  bool sums_apart(const Unit& unit) const;
  bool held_through_micro_batch(const Unit& unit) const;  // its slot: head and embedding both add to it
  const Parts& parts_of(const Unit& unit) const;
  // In StepProgram::units, from 1; 0 for what is not there.
  std::uint32_t number_of(const Unit& unit) const;
  Operand own_parameter(const Unit& unit) const;
  void update(const Unit& unit, BufferId scalars);

  Builder& builder_;
  const describe::Plan& plan_;
  std::vector<Unit>& units_;
  std::vector<Parts> parts_;
  int stage_;
  std::int64_t partitions_;
  std::int64_t prefetch_ = 0;
  DataType compute_;
  Stream traffic_;  // of what forward and backward gather and reduce
  DataType parameter_;
  DataType gradient_;
  bool master_;
  bool tied_;
  Space states_space_;

  BufferId gathered_ring_ = kNoBuffer;
  BufferId gradient_ring_ = kNoBuffer;
  BufferId gradient_ring_rest_ = kNoBuffer;  // of an engine's bucket, what is larger than any layer
  BufferId step_bucket_ = kNoBuffer;
  BufferId host_gradient_ = kNoBuffer;   // stage 1 with offload
  BufferId host_parameter_ = kNoBuffer;  // updated parameters on their way back
};

DataType compute_type(describe::Precision precision);

}  // namespace zeroplan::program
