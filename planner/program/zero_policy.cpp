#include "planner/program/zero_policy.hpp"

#include "planner/program/zero_step.hpp"

namespace zeroplan::program {

using describe::Offload;

void ZeroPolicy::acquire_states() {
  for (std::size_t i = 0; i < layout_.units.size(); ++i) {
    const Unit& unit = layout_.units[i];
    builder_.acquire_all(unit.parameter);
    builder_.acquire_all(unit.gradient);
    builder_.acquire_all(layout_.unit_parts[i].fp32_gradient);
    builder_.acquire_all(layout_.unit_parts[i].secondary);
    builder_.acquire_all(unit.master);
    for (const BufferId state : unit.states) builder_.acquire_all(state);
  }
}

void ZeroPolicy::zero_gradients() {
  for (const Unit& unit : layout_.units) {
    if (unit.gradient == kNoBuffer) continue;
    const Elements elements = layout_.slots_for_gradients() ? unit.partition : layout_.whole(unit);
    builder_.layers(unit.layers, unit.first_layer, 1,
                    [&] { builder_.emit(Op::fill_zero, {elements}, {at(unit.gradient)}); });
  }
}

void ZeroPolicy::begin_micro_batch() {
  builder_.acquire_all(layout_.gathered_ring);
  builder_.acquire_all(layout_.gradient_ring);
  builder_.acquire_all(layout_.gradient_ring_rest);
  for (const Unit& unit : layout_.units) {
    if (layout_.held_through_micro_batch(unit)) builder_.acquire(at(unit.weight_gradients));
  }
}

void ZeroPolicy::begin_backward() {
  for (const Unit& unit : layout_.units) {
    if (!layout_.held_through_micro_batch(unit)) continue;
    builder_.emit(Op::fill_zero, {layout_.whole(unit)}, {at(unit.weight_gradients)});
  }
}

void ZeroPolicy::end_micro_batch() {
  for (const Unit& unit : layout_.units) {
    if (layout_.held_through_micro_batch(unit)) builder_.release(at(unit.weight_gradients));
  }
  builder_.release_all(layout_.gradient_ring_rest);
  builder_.release_all(layout_.gradient_ring);
  builder_.release_all(layout_.gathered_ring);
}

void ZeroPolicy::gather(const Unit& unit, std::int8_t layer_offset, Pass pass) {
  if (!gathers() || unit.elements == 0) return;
  const UnitParts& parts = layout_.parts_of(unit);
  const Operand weights = at(unit.weights, layer_offset);
  if (pass == Pass::backward && layout_.secondary != kNoGroup) {
    builder_.collective(Op::all_gather, layout_.secondary, layout_.whole(unit),
                        {at(parts.secondary, layer_offset), weights}, 0, layout_.traffic);
    return;
  }
  Operand own = at(unit.parameter, layer_offset);
  if (layout_.plan.offload == Offload::all) {
    own = at(unit.is_opaque() ? unit.weights : parts.weights, layer_offset);
    builder_.emit(Op::copy_to_device, {unit.partition}, {at(unit.parameter, layer_offset), own});
  } else if (layout_.parameter_type != layout_.computed_type || layout_.partitions == 1) {
    // Ranks gather in the type that the model computes in: each converts its own partition first. One rank
    // that keeps its optimizer on the host has nobody to gather from.
    own = at(unit.is_opaque() ? unit.weights : parts.weights, layer_offset);
    builder_.emit(Op::copy, {unit.partition}, {at(unit.parameter, layer_offset), own}).stream =
        layout_.traffic;
  }
  builder_.collective(Op::all_gather, layout_.shard, layout_.whole(unit), {own, weights}, 0, layout_.traffic);
  if (parts.secondary != kNoBuffer) {
    const Operand part = unit.is_opaque() ? weights : at(parts.secondary_weights, layer_offset);
    builder_.emit(Op::copy, {layout_.secondary_elements(unit)}, {part, at(parts.secondary, layer_offset)})
        .stream = layout_.traffic;
  }
}

void ZeroPolicy::acquire_weights(const Unit& unit) {
  if (gathers()) builder_.acquire(at(unit.weights));
}

void ZeroPolicy::release_weights(const Unit& unit) {
  if (gathers()) builder_.release(at(unit.weights));
}

void ZeroPolicy::acquire_gradients(const Unit& unit) {
  if (unit.elements == 0 || !layout_.slots_for_gradients() || layout_.held_through_micro_batch(unit)) return;
  builder_.acquire(at(unit.weight_gradients));
  if (!unit.is_opaque()) builder_.emit(Op::fill_zero, {layout_.whole(unit)}, {at(unit.weight_gradients)});
}

void ZeroPolicy::release_gradients(const Unit& unit) {
  if (!layout_.slots_for_gradients() || layout_.held_through_micro_batch(unit)) return;
  builder_.release(at(unit.weight_gradients));
}

void ZeroPolicy::clear_gradients(const Unit& unit) {
  if (layout_.slots_for_gradients())
    builder_.emit(Op::fill_zero, {layout_.whole(unit)}, {at(unit.weight_gradients)});
}

void ZeroPolicy::reduce(const Unit& unit, bool last) {
  if (unit.elements == 0) return;
  const UnitParts& parts = layout_.parts_of(unit);
  const Elements elements = layout_.whole(unit);
  const auto over_replicas = [&](Operand own) {
    builder_.collective(Op::all_reduce, layout_.replica, unit.partition, {own}, 0, layout_.traffic);
  };
  if (!layout_.slots_for_gradients()) {
    if (layout_.sums_apart(unit))
      builder_.emit(Op::accumulate, {elements}, {at(unit.weight_gradients), at(unit.gradient)});
    if (!last) return;
    builder_.collective(Op::reduce_scatter, layout_.shard, elements, {at(unit.gradient)}, 0, layout_.traffic);
    over_replicas(layout_.own_gradient(unit));
    return;
  }
  builder_.collective(Op::reduce_scatter, layout_.shard, elements, {at(unit.weight_gradients)}, 0,
                      layout_.traffic);
  const Operand own = at(unit.is_opaque() ? unit.weight_gradients : parts.weight_gradients);
  const bool each_time = layout_.plan.engine->sums_replicas_each_micro_batch;
  if (each_time) over_replicas(own);
  if (layout_.plan.offload == Offload::none) {
    builder_.emit(Op::accumulate, {unit.partition}, {own, at(unit.gradient)}).stream = layout_.traffic;
  } else {
    builder_.emit(Op::accumulate_host, {unit.partition}, {own, at(unit.gradient)});
  }
  if (last && !each_time) over_replicas(layout_.own_gradient(unit));
}

void ZeroPolicy::step(BufferId scalars) { ZeroStep(builder_, layout_, scalars).emit(); }

}  // namespace zeroplan::program
