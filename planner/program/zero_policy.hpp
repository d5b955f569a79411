#pragma once

#include <cstdint>
#include <vector>

#include "planner/describe/plan/plan.hpp"
#include "planner/program/builder.hpp"
#include "planner/program/unit.hpp"
#include "planner/program/zero_layout.hpp"

namespace zeroplan::program {

// What ZeRO adds to a step, at the fixed points where the compiler asks: before a unit is computed, after its
// backward, and at the optimizer step. Sections 5 and 7 of the ZeRO paper (arXiv 1910.02054):
//   stage 0              gradients are all-reduced once a step
//   stage 1  (P_os)      the optimizer state is partitioned: gradients are reduce-scattered once a step, and
//                        parameters are gathered after it
//   stage 2  (P_os+g)    gradients are partitioned too: they are reduce-scattered after each micro-batch
//   stage 3  (P_os+g+p)  parameters are partitioned too: they are gathered before each forward and backward
// with offload of optimizer state, gradients and parameters to host memory as in ZeRO-Offload (arXiv 2101.06840).
// Under hybrid sharding (HSDP, MiCS: arXiv 2205.00119) what is partitioned is partitioned over a shard group; gradients
// are then summed over its replicas too, once a step, or with each micro-batch as FSDP2 does. A secondary shard is hpZ of
// ZeRO++ (arXiv 2306.10209, Section 3.2).
class ZeroPolicy {
 public:
  // Declares every buffer of the policy and sets the buffers of `units`.
  ZeroPolicy(Builder& builder, const describe::Plan& plan, std::vector<Unit>& units, bool tied_embeddings)
      : builder_(builder), layout_(builder, plan, units, tied_embeddings) {}

  // The last micro-batch of a step reduces what the others do not.
  bool last_differs() const {
    return (layout_.stage <= 2 || layout_.replica != kNoGroup) && layout_.data != kNoGroup;
  }

  void acquire_states();
  void zero_gradients();

  // The slots that one micro-batch uses from its start to its end.
  void begin_micro_batch();
  // Clears the slots that head and embedding both add to.
  void begin_backward();
  void end_micro_batch();

  bool gathers() const { return layout_.stage == 3; }
  std::int64_t prefetch_layers() const { return layout_.prefetch; }
  // Makes the weights of layer (register + layer_offset), or of an end unit, whole. Nothing below stage 3. With a
  // secondary shard forward fills it, and backward gathers from it.
  enum class Pass : std::uint8_t { forward, backward };
  void gather(const Unit& unit, std::int8_t layer_offset = 0, Pass pass = Pass::forward);

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
  Builder& builder_;
  ZeroLayout layout_;
};

}  // namespace zeroplan::program
