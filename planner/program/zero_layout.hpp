#pragma once

#include <vector>

#include "planner/describe/plan/plan.hpp"
#include "planner/program/builder.hpp"
#include "planner/program/unit.hpp"

namespace zeroplan::program {

DataType compute_type(describe::Precision precision);

// The stage that makes a difference: partitioning over one rank is none, unless something is offloaded.
int effective_stage(const describe::Plan& plan);

// How many partitions ZeRO makes of a unit; 1: it makes none.
std::int64_t partitions_of(const describe::Plan& plan);

// A rank's own part of what is whole in a unit, as views, and what the policy holds beside the unit's own buffers.
struct UnitParts {
  BufferId parameter = kNoBuffer;
  BufferId gradient = kNoBuffer;
  BufferId weights = kNoBuffer;
  BufferId weight_gradients = kNoBuffer;
  BufferId secondary_weights = kNoBuffer;  // of the secondary shard, in the whole weights
  BufferId secondary = kNoBuffer;          // the secondary shard itself
  BufferId fp32_gradient = kNoBuffer;      // persistent fp32 partition beside the 16-bit one
  BufferId fused_gradient = kNoBuffer;     // fp32 copy of the step, when it is not cut into buckets
};

// Which buffers ZeRO holds, and who has which part of them; what the traffic and the step of the policy read.
struct ZeroLayout {
  // Declares every buffer of the policy and sets the buffers of the units.
  ZeroLayout(Builder& builder, const describe::Plan& of_plan, std::vector<Unit>& of_units,
             bool tied_embeddings);

  Elements whole(const Unit& unit) const;  // padding included
  Elements secondary_elements(const Unit& unit) const;
  const UnitParts& parts_of(const Unit& unit) const;
  Operand own_gradient(const Unit& unit) const;           // this rank's part of the persistent gradient
  bool slots_for_gradients() const;                       // gradients pass through slots to a partition
  bool sums_apart(const Unit& unit) const;                // of micro-batches, in a slot
  bool held_through_micro_batch(const Unit& unit) const;  // its slot: head and embedding both add to it

  const describe::Plan& plan;
  std::vector<Unit>& units;
  std::vector<UnitParts> unit_parts;
  int stage;
  std::int64_t partitions;
  GroupId data;                  // all ranks with the same part of the model
  GroupId shard = kNoGroup;      // hold one partition each
  GroupId replica = kNoGroup;    // hold the same
  GroupId secondary = kNoGroup;  // hold a part each of a second copy of the parameters
  std::int64_t own_index = 0;    // of this rank's partition
  std::int64_t prefetch = 0;     // layers
  DataType computed_type;
  Stream traffic;  // of what forward and backward gather and reduce
  DataType parameter_type = DataType::fp32;
  DataType gradient_type = DataType::fp32;
  bool master = false;
  bool tied;
  Space states_space;

  BufferId gathered_ring = kNoBuffer;
  BufferId gradient_ring = kNoBuffer;
  BufferId gradient_ring_rest = kNoBuffer;  // of an engine's bucket, what is larger than any layer
  BufferId step_bucket = kNoBuffer;
  BufferId host_gradient = kNoBuffer;   // stage 1 with offload
  BufferId host_parameter = kNoBuffer;  // updated parameters on their way back

 private:
  void declare_states(Unit& unit, UnitParts& parts);
  void declare_slots();
  void declare_step();
  bool whole_at_stage_2() const;  // the engine counts whole gradients at stage 2

  Builder& builder_;
};

}  // namespace zeroplan::program
