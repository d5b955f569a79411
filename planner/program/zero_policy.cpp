#include "planner/program/zero_policy.hpp"

#include <algorithm>

namespace zeroplan::program {

namespace {

using describe::Offload;
using Kind = describe::ParameterGroup::Kind;

// Buffer names outlive the plan they are compiled from, so they are literals.
std::string_view state_name(std::string_view part) {
  for (const std::string_view known : {"momentum", "variance", "second_moment"}) {
    if (part == known) return known;
  }
  return "optimizer_state";
}

std::int64_t most(const std::vector<Unit>& units, auto&& value) {
  std::int64_t result = 0;
  for (const Unit& unit : units) result = std::max<std::int64_t>(result, value(unit));
  return result;
}

}  // namespace

DataType compute_type(describe::Precision precision) {
  switch (precision) {
    case describe::Precision::fp16:
      return DataType::fp16;
    case describe::Precision::bf16:
      return DataType::bf16;
    case describe::Precision::fp32:
      break;
  }
  return DataType::fp32;
}

int ZeroPolicy::effective_stage(const describe::Plan& plan) {
  return plan.data_parallel > 1 || plan.offload != Offload::none ? plan.zero_stage : 0;
}

ZeroPolicy::ZeroPolicy(Builder& builder, const describe::Plan& plan, std::vector<Unit>& units,
                       bool tied_embeddings)
    : builder_(builder),
      plan_(plan),
      units_(units),
      stage_(effective_stage(plan)),
      partitions_(stage_ > 0 ? plan.data_parallel : 1),
      compute_(compute_type(plan.precision)),
      traffic_(plan.overlap ? Stream::communication : Stream::compute),
      tied_(tied_embeddings),
      states_space_(plan.offload != Offload::none ? Space::host : Space::device) {
  const bool fp32_parameters = plan.engine.fp32_parameters && (stage_ == 0 || stage_ == 3);
  parameter_ = fp32_parameters ? DataType::fp32 : compute_;
  // An optimizer on the host needs a copy there of what it updates, also where the parameters are fp32.
  master_ = parameter_ != DataType::fp32 || plan.offload == Offload::optimizer;
  const bool fp32_gradients = (compute_ == DataType::fp16 && plan.engine.fp32_gradients_with_fp16) ||
                              (compute_ == DataType::bf16 && plan.engine.fp32_gradients_with_bf16);
  gradient_ = fp32_gradients ? DataType::fp32 : compute_;
  parts_.resize(units.size());
  for (std::size_t i = 0; i < units.size(); ++i) declare_states(units[i], parts_[i]);
  declare_slots();
  declare_step();
}

Elements ZeroPolicy::whole(const Unit& unit) const { return unit.partition * partitions_; }

bool ZeroPolicy::whole_at_stage_2() const { return stage_ == 2 && plan_.engine.whole_gradients_at_stage_2; }

// Head and embedding add to a tied table in turn. Where micro-batches accumulate in the whole gradient, each
// one's two parts are first added apart, as where it goes through a slot: so all stages give the same bits.
bool ZeroPolicy::sums_apart(const Unit& unit) const {
  return tied_ && unit.kind == Kind::embedding && !slots_for_gradients() &&
         plan_.engine.tied_gradient_apart && plan_.gradient_accumulation > 1;
}

bool ZeroPolicy::held_through_micro_batch(const Unit& unit) const {
  return tied_ && unit.kind == Kind::embedding && (slots_for_gradients() || sums_apart(unit));
}

bool ZeroPolicy::slots_for_gradients() const {
  return stage_ >= 2 && !(whole_at_stage_2() && plan_.offload == Offload::none);
}

const ZeroPolicy::Parts& ZeroPolicy::parts_of(const Unit& unit) const {
  return parts_[static_cast<std::size_t>(&unit - units_.data())];
}

void ZeroPolicy::declare_states(Unit& unit, Parts& parts) {
  const Instances each{unit.layers, unit.first_layer};
  const bool offload = plan_.offload != Offload::none;
  const Elements own_offset = unit.partition * builder_.program().data_parallel.rank;

  unit.parameter = builder_.buffer("parameter", parameter_, Category::parameter,
                                   stage_ == 3 ? unit.partition : whole(unit), each,
                                   plan_.offload == Offload::all ? Space::host : Space::device);
  unit.weights = unit.parameter;
  if (stage_ == 1 || stage_ == 2) {
    parts.parameter = builder_.view("parameter.own", unit.parameter, own_offset, unit.partition);
  }

  const bool fp32_partition = plan_.engine.fp32_gradient_partition && gradient_ != DataType::fp32 &&
                              (stage_ >= 1 || plan_.engine.fp32_gradient_at_stage_0);
  const bool replaced =
      stage_ == 3 ? plan_.engine.fp32_gradient_replaces_stage_3 : whole_at_stage_2() && offload;
  const bool only_fp32_partition = fp32_partition && replaced;
  if (slots_for_gradients()) {
    unit.gradient = builder_.buffer("gradient", only_fp32_partition ? DataType::fp32 : gradient_,
                                    Category::gradient, unit.partition, each, states_space_);
  } else {
    unit.gradient = builder_.buffer("gradient", gradient_, Category::gradient, whole(unit), each);
    unit.weight_gradients = unit.gradient;
    if (stage_ >= 1)
      parts.gradient = builder_.view("gradient.own", unit.gradient, own_offset, unit.partition);
  }
  if (fp32_partition && !only_fp32_partition) {
    parts.fp32_gradient = builder_.reserve(builder_.buffer(
        "gradient.fp32", DataType::fp32, Category::gradient, unit.partition, each, states_space_));
  }

  if (master_) {
    unit.master = builder_.buffer("master", DataType::fp32, Category::optimizer_state, unit.partition, each,
                                  states_space_);
  }
  for (std::size_t i = 0; i < plan_.optimizer.parts.size() && i < unit.states.size(); ++i) {
    const describe::OptimizerPart& part = plan_.optimizer.parts[i];
    DataType type = DataType::fp32;
    Elements elements = part.factored && partitions_ == 1 ? unit.factored : unit.partition;
    if (part.block_elements > 0 || part.bytes_per_parameter == 1) {
      type = DataType::uint8;
      elements *= part.bytes_per_parameter;
      if (part.block_elements > 0)
        elements += div_ceil(unit.partition, part.block_elements) * part.block_bytes;
    } else if (part.bytes_per_parameter == 2) {
      type = DataType::bf16;
    }
    unit.states[i] = builder_.buffer(state_name(part.name), type, Category::optimizer_state, elements, each,
                                     states_space_);
  }
}

void ZeroPolicy::declare_slots() {
  const std::int64_t layers = std::max<std::int64_t>(1, builder_.program().layers);
  const auto largest_layer = [this](const Unit& unit) {
    return unit.is_layer() ? round_up(unit.working, partitions_ * plan_.engine.partition_multiple) : 0;
  };
  if (stage_ == 3) {
    prefetch_ = std::min(plan_.engine.prefetch_layers, layers - 1);
    gathered_ring_ = builder_.buffer("gathered", compute_, Category::gathered, most(units_, largest_layer),
                                     {prefetch_ + 1, 0});
  }
  if (slots_for_gradients()) {
    const Elements elements = most(units_, largest_layer);
    std::int64_t slots = std::min<std::int64_t>(2, layers);
    Elements rest = 0;
    if (plan_.engine.gradient_buckets > 0) {
      const bool beside = traffic_ != Stream::compute;
      const std::int64_t beside_kernels = beside ? plan_.engine.overlapped_gradient_buckets : 0;
      const std::int64_t buckets =
          stage_ == 2 && beside_kernels > 0 ? beside_kernels : plan_.engine.gradient_buckets;
      // A bucket holds as many layers as there is room for, which are reduced while it is filled again.
      const Elements room = buckets * (plan_.bucket_bytes / bytes_of(gradient_));
      const std::int64_t least = std::max(buckets, std::min(beside_kernels, layers));
      slots =
          std::clamp<std::int64_t>(room / std::max<Elements>(1, elements), least, std::max(least, layers));
      rest = std::max<Elements>(0, room - slots * elements);
    }
    gradient_ring_ = builder_.buffer("gradient_bucket", gradient_, Category::bucket, elements, {slots, 0});
    gradient_ring_rest_ =
        builder_.reserve(builder_.buffer("gradient_bucket.rest", gradient_, Category::bucket, rest));
  }
  const Elements own = builder_.program().data_parallel.rank;
  for (std::size_t i = 0; i < units_.size(); ++i) {
    Unit& unit = units_[i];
    Parts& parts = parts_[i];
    // What is not described is moved piece by piece through a slot of its largest piece.
    const Elements piece = std::max<Elements>(1, whole_at_stage_2() ? 0 : unit.working);
    const Elements slot = unit.is_opaque() ? piece : whole(unit);
    if (stage_ == 3) {
      unit.weights = unit.is_layer() ? builder_.view("weights", gathered_ring_, 0, whole(unit))
                                     : builder_.buffer("gathered", compute_, Category::gathered, slot);
      if (!unit.is_opaque()) {
        parts.weights = builder_.view("weights.own", unit.weights, own * unit.partition, unit.partition);
      }
    }
    if (sums_apart(unit)) {
      unit.weight_gradients = builder_.buffer("gradient_bucket", gradient_, Category::bucket, slot);
    }
    if (slots_for_gradients()) {
      unit.weight_gradients = unit.is_layer()
                                  ? builder_.view("weight_gradients", gradient_ring_, 0, whole(unit))
                                  : builder_.buffer("gradient_bucket", gradient_, Category::bucket, slot);
      if (!unit.is_opaque()) {
        parts.weight_gradients = builder_.view("weight_gradients.own", unit.weight_gradients,
                                               own * unit.partition, unit.partition);
      }
    }
  }
}

void ZeroPolicy::declare_step() {
  const bool offload = plan_.offload != Offload::none;
  const auto partition = [](const Unit& unit) { return unit.partition; };
  // On the host the optimizer is one fused kernel, which copies no partition as a whole.
  const bool copies_partition = plan_.engine.step_copies_whole_partition && !offload;
  if (plan_.constant_buffers && !copies_partition) {
    step_bucket_ =
        builder_.buffer("step_bucket", DataType::fp32, Category::bucket,
                        std::min(plan_.bucket_bytes / 4, most(units_, partition)), {}, states_space_);
  } else if (plan_.bucket_bytes > 0) {
    for (std::size_t i = 0; i < units_.size(); ++i) {
      parts_[i].fused_gradient =
          builder_.buffer("fused_gradient", DataType::fp32, Category::bucket, units_[i].partition,
                          {units_[i].layers, units_[i].first_layer}, states_space_);
    }
  }
  if (!offload) return;
  // What is not described is staged piece by piece; an engine without buckets counts no staging.
  const auto staged = [this](const Unit& unit) {
    if (plan_.bucket_bytes == 0) return Elements{1};
    return unit.is_opaque() ? std::max<Elements>(1, unit.working / partitions_) : unit.partition;
  };
  if (stage_ == 1) {
    host_gradient_ = builder_.buffer("host_gradient", gradient_, Category::gradient, most(units_, staged), {},
                                     Space::host);
  }
  if (plan_.offload == Offload::optimizer) {
    host_parameter_ = builder_.buffer("host_parameter", parameter_, Category::parameter, most(units_, staged),
                                      {}, Space::host);
  }
}

void ZeroPolicy::acquire_states() {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const Unit& unit = units_[i];
    builder_.acquire_all(unit.parameter);
    builder_.acquire_all(unit.gradient);
    builder_.acquire_all(parts_[i].fp32_gradient);
    builder_.acquire_all(unit.master);
    for (const BufferId state : unit.states) builder_.acquire_all(state);
  }
}

void ZeroPolicy::zero_gradients() {
  for (const Unit& unit : units_) {
    if (unit.gradient == kNoBuffer) continue;
    const Elements elements = slots_for_gradients() ? unit.partition : whole(unit);
    builder_.layers(unit.layers, unit.first_layer, 1,
                    [&] { builder_.emit(Op::fill_zero, {elements}, {at(unit.gradient)}); });
  }
}

void ZeroPolicy::begin_micro_batch() {
  builder_.acquire_all(gathered_ring_);
  builder_.acquire_all(gradient_ring_);
  builder_.acquire_all(gradient_ring_rest_);
  for (const Unit& unit : units_) {
    if (held_through_micro_batch(unit)) builder_.acquire(at(unit.weight_gradients));
  }
}

void ZeroPolicy::begin_backward() {
  for (const Unit& unit : units_) {
    if (!held_through_micro_batch(unit)) continue;
    builder_.emit(Op::fill_zero, {whole(unit)}, {at(unit.weight_gradients)});
  }
}

void ZeroPolicy::end_micro_batch() {
  for (const Unit& unit : units_) {
    if (held_through_micro_batch(unit)) builder_.release(at(unit.weight_gradients));
  }
  builder_.release_all(gradient_ring_rest_);
  builder_.release_all(gradient_ring_);
  builder_.release_all(gathered_ring_);
}

void ZeroPolicy::gather(const Unit& unit, std::int16_t layer_offset) {
  if (stage_ != 3 || unit.elements == 0) return;
  const Parts& parts = parts_of(unit);
  Operand own = at(unit.parameter, layer_offset);
  if (plan_.offload == Offload::all) {
    own = at(unit.is_opaque() ? unit.weights : parts.weights, layer_offset);
    builder_.emit(Op::copy_to_device, {unit.partition}, {at(unit.parameter, layer_offset), own});
  } else if (parameter_ != compute_ || partitions_ == 1) {
    // Ranks gather in the type that the model computes in: each converts its own partition first. One rank
    // that keeps its optimizer on the host has nobody to gather from.
    own = at(unit.is_opaque() ? unit.weights : parts.weights, layer_offset);
    builder_.emit(Op::copy, {unit.partition}, {at(unit.parameter, layer_offset), own}).stream = traffic_;
  }
  builder_.collective(Op::all_gather, Group::data_parallel, whole(unit),
                      {own, at(unit.weights, layer_offset)}, 0, traffic_);
}

void ZeroPolicy::acquire_weights(const Unit& unit) {
  if (stage_ == 3) builder_.acquire(at(unit.weights));
}

void ZeroPolicy::release_weights(const Unit& unit) {
  if (stage_ == 3) builder_.release(at(unit.weights));
}

void ZeroPolicy::acquire_gradients(const Unit& unit) {
  if (unit.elements == 0 || !slots_for_gradients() || held_through_micro_batch(unit)) return;
  builder_.acquire(at(unit.weight_gradients));
  if (!unit.is_opaque()) builder_.emit(Op::fill_zero, {whole(unit)}, {at(unit.weight_gradients)});
}

void ZeroPolicy::release_gradients(const Unit& unit) {
  if (!slots_for_gradients() || held_through_micro_batch(unit)) return;
  builder_.release(at(unit.weight_gradients));
}

void ZeroPolicy::clear_gradients(const Unit& unit) {
  if (slots_for_gradients()) builder_.emit(Op::fill_zero, {whole(unit)}, {at(unit.weight_gradients)});
}

void ZeroPolicy::reduce(const Unit& unit, bool last) {
  if (unit.elements == 0) return;
  const Parts& parts = parts_of(unit);
  const Elements elements = whole(unit);
  if (!slots_for_gradients()) {
    if (sums_apart(unit))
      builder_.emit(Op::accumulate, {elements}, {at(unit.weight_gradients), at(unit.gradient)});
    if (!last) return;
    builder_.collective(stage_ == 0 ? Op::all_reduce : Op::reduce_scatter, Group::data_parallel, elements,
                        {at(unit.gradient)}, 0, traffic_);
    return;
  }
  builder_.collective(Op::reduce_scatter, Group::data_parallel, elements, {at(unit.weight_gradients)}, 0,
                      traffic_);
  const Operand own = at(unit.is_opaque() ? unit.weight_gradients : parts.weight_gradients);
  if (plan_.offload == Offload::none) {
    builder_.emit(Op::accumulate, {unit.partition}, {own, at(unit.gradient)}).stream = traffic_;
  } else {
    builder_.emit(Op::accumulate_host, {unit.partition}, {own, at(unit.gradient)});
  }
}

void ZeroPolicy::step(BufferId scalars) {
  const bool offload = plan_.offload != Offload::none;
  const Stream stream = offload ? Stream::host : Stream::compute;
  builder_.wait_for_all();
  builder_.phase(Phase::step);
  Scope scope(builder_);
  for (const Parts& parts : parts_) builder_.acquire_all(parts.fused_gradient);
  scope.acquire(at(step_bucket_));
  scope.acquire(at(host_gradient_));
  scope.acquire(at(host_parameter_));

  for (const Unit& unit : units_) {
    if (unit.elements == 0) continue;
    const Parts& parts = parts_of(unit);
    const Operand own = at(parts.gradient != kNoBuffer ? parts.gradient : unit.gradient);
    builder_.layers(unit.layers, unit.first_layer, 1, [&] {
      builder_.emit(Op::gradient_norm, {unit.owned, unit.owned_distinct}, {own, at(scalars)}).stream =
          offload && stage_ >= 2 ? Stream::host : Stream::compute;
    });
  }
  // Loss and overflow are summed over all data-parallel ranks, and the squared norm where each has a part of
  // it.
  builder_.collective(Op::all_reduce, Group::data_parallel, stage_ >= 1 ? 2 + kNormParts : 2, {at(scalars)});
  builder_.collective(
      Op::all_reduce, Group::tensor_parallel, 1 + kNormParts,
      {at(builder_.view("scalars.norm", scalars, static_cast<Elements>(Scalar::overflow), 1 + kNormParts))});
  builder_.emit(Op::scale_update, {}, {at(scalars)}).stream = stream;

  for (const Unit& unit : units_) {
    builder_.layers(unit.layers, unit.first_layer, 1, [&] { update(unit, scalars); });
  }
  // No engine gathers one unit beside the update of another.
  if (stage_ == 1 || stage_ == 2) {
    for (const Unit& unit : units_) {
      if (unit.elements == 0 || partitions_ == 1) continue;
      builder_.layers(unit.layers, unit.first_layer, 1, [&] {
        builder_.collective(Op::all_gather, Group::data_parallel, whole(unit),
                            {own_parameter(unit), at(unit.parameter)});
      });
    }
  }
  scope.release();
  for (auto parts = parts_.rbegin(); parts != parts_.rend(); ++parts)
    builder_.release_all(parts->fused_gradient);
}

std::uint32_t ZeroPolicy::number_of(const Unit& unit) const {
  if (unit.is_opaque()) return 0;
  std::uint32_t number = 1;
  for (const Unit* before = units_.data(); before != &unit; ++before) number += before->is_opaque() ? 0 : 1;
  return number;
}

Operand ZeroPolicy::own_parameter(const Unit& unit) const {
  const Parts& parts = parts_of(unit);
  return at(parts.parameter != kNoBuffer ? parts.parameter : unit.parameter);
}

void ZeroPolicy::update(const Unit& unit, BufferId scalars) {
  if (unit.elements == 0) return;
  const Parts& parts = parts_of(unit);
  const bool offload = plan_.offload != Offload::none;
  const Stream stream = offload ? Stream::host : Stream::compute;
  Operand gradient = at(parts.gradient != kNoBuffer ? parts.gradient : unit.gradient);
  if (host_gradient_ != kNoBuffer) {
    builder_.emit(Op::copy_to_host, {unit.partition}, {gradient, at(host_gradient_)});
    gradient = at(host_gradient_);
  }
  const Operand updated = host_parameter_ != kNoBuffer ? at(host_parameter_) : own_parameter(unit);

  Operand fp32 = at(step_bucket_);
  Elements chunk = unit.partition;
  if (parts.fused_gradient != kNoBuffer) {
    fp32 = at(parts.fused_gradient);
  } else if (step_bucket_ != kNoBuffer) {
    chunk = std::min(builder_[step_bucket_].elements, unit.partition);
  }
  builder_.times(div_ceil(unit.owned, chunk), [&] {
    builder_.emit(Op::gradient_to_fp32, {unit.owned, chunk}, {gradient, at(scalars), fp32}).stream = stream;
    Instruction& instruction = builder_.emit(
        Op::optimizer_update, {unit.owned, chunk},
        {fp32, at(unit.master), updated, at(unit.states[0]), at(unit.states[1]), at(unit.states[2])});
    instruction.stream = stream;
    instruction.extra = number_of(unit);
  });

  if (host_parameter_ != kNoBuffer) {
    // Padding was not updated.
    builder_.emit(Op::copy_to_device, {unit.owned}, {updated, own_parameter(unit)});
  }
}

}  // namespace zeroplan::program
