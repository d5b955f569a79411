#include "planner/program/zero_step.hpp"

#include <algorithm>

namespace zeroplan::program {

using describe::Offload;

void ZeroStep::emit() {
  builder_.wait_for_all();
  builder_.phase(Phase::step);
  Scope scope(builder_);
  for (const UnitParts& parts : layout_.unit_parts) builder_.acquire_all(parts.fused_gradient);
  scope.acquire(at(layout_.step_bucket));
  scope.acquire(at(layout_.host_gradient));
  scope.acquire(at(layout_.host_parameter));
  add_norms();
  for (const Unit& unit : layout_.units) {
    builder_.layers(unit.layers, unit.first_layer, 1, [&] { update(unit); });
  }
  if (layout_.stage == 1 || layout_.stage == 2) gather_parameters();
  scope.release();
  for (auto parts = layout_.unit_parts.rbegin(); parts != layout_.unit_parts.rend(); ++parts)
    builder_.release_all(parts->fused_gradient);
}

void ZeroStep::add_norms() {
  const bool offload = layout_.plan.offload != Offload::none;
  for (const Unit& unit : layout_.units) {
    if (unit.elements == 0) continue;
    builder_.layers(unit.layers, unit.first_layer, 1, [&] {
      builder_
          .emit(Op::gradient_norm, {unit.owned, unit.owned_distinct},
                {layout_.own_gradient(unit), at(scalars_)})
          .stream = offload && layout_.stage >= 2 ? Stream::host : Stream::compute;
    });
  }
  // Loss and overflow are summed over all data-parallel ranks, and the squared norm where each has a part of it.
  constexpr Elements kLossAndOverflow = 2;
  const bool together = layout_.shard == layout_.data;
  builder_.collective(Op::all_reduce, layout_.data, kLossAndOverflow + (together ? kNormParts : 0),
                      {at(scalars_)});
  if (!together) {
    builder_.collective(Op::all_reduce, layout_.shard, kNormParts,
                        {scalars_from(Scalar::norm_parts, kNormParts)});
  }
  builder_.tensor_collective(Op::all_reduce, 1 + kNormParts,
                             {scalars_from(Scalar::overflow, 1 + kNormParts)});
  builder_.emit(Op::scale_update, {}, {at(scalars_)}).stream = offload ? Stream::host : Stream::compute;
}

// No engine gathers one unit beside the update of another.
void ZeroStep::gather_parameters() {
  for (const Unit& unit : layout_.units) {
    if (unit.elements == 0 || layout_.shard == kNoGroup) continue;
    builder_.layers(unit.layers, unit.first_layer, 1, [&] {
      builder_.collective(Op::all_gather, layout_.shard, layout_.whole(unit),
                          {own_parameter(unit), at(unit.parameter)});
    });
  }
}

Operand ZeroStep::scalars_from(Scalar first, Elements count) {
  return at(builder_.view("scalars.norm", scalars_, static_cast<Elements>(first), count));
}

std::uint32_t ZeroStep::number_of(const Unit& unit) const {
  if (unit.is_opaque()) return 0;
  std::uint32_t number = 1;
  for (const Unit* before = layout_.units.data(); before != &unit; ++before)
    number += before->is_opaque() ? 0 : 1;
  return number;
}

Operand ZeroStep::own_parameter(const Unit& unit) const {
  const UnitParts& parts = layout_.parts_of(unit);
  return at(parts.parameter != kNoBuffer ? parts.parameter : unit.parameter);
}

void ZeroStep::update(const Unit& unit) {
  if (unit.elements == 0) return;
  const UnitParts& parts = layout_.parts_of(unit);
  const bool offload = layout_.plan.offload != Offload::none;
  const Stream stream = offload ? Stream::host : Stream::compute;
  Operand gradient = layout_.own_gradient(unit);
  if (layout_.host_gradient != kNoBuffer) {
    builder_.emit(Op::copy_to_host, {unit.partition}, {gradient, at(layout_.host_gradient)});
    gradient = at(layout_.host_gradient);
  }
  const Operand updated =
      layout_.host_parameter != kNoBuffer ? at(layout_.host_parameter) : own_parameter(unit);

  Operand fp32 = at(layout_.step_bucket);
  Elements chunk = unit.partition;
  if (parts.fused_gradient != kNoBuffer) {
    fp32 = at(parts.fused_gradient);
  } else if (layout_.step_bucket != kNoBuffer) {
    chunk = std::min(builder_[layout_.step_bucket].elements, unit.partition);
  }
  builder_.times(div_ceil(unit.owned, chunk), [&] {
    builder_.emit(Op::gradient_to_fp32, {unit.owned, chunk}, {gradient, at(scalars_), fp32}).stream = stream;
    Instruction& instruction = builder_.emit(
        Op::optimizer_update, {unit.owned, chunk},
        {fp32, at(unit.master), updated, at(unit.states[0]), at(unit.states[1]), at(unit.states[2])});
    instruction.stream = stream;
    instruction.extra = number_of(unit);
  });

  if (layout_.host_parameter != kNoBuffer) {
    // Padding was not updated.
    builder_.emit(Op::copy_to_device, {unit.owned}, {updated, own_parameter(unit)});
  }
}

}  // namespace zeroplan::program
