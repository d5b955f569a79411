#include "planner/program/zero_layout.hpp"

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

int effective_stage(const describe::Plan& plan) {
  return plan.data_parallel > 1 || plan.offload != Offload::none ? plan.zero_stage : 0;
}

std::int64_t partitions_of(const describe::Plan& plan) {
  return effective_stage(plan) > 0 ? plan.shard_ranks() : 1;
}

ZeroLayout::ZeroLayout(Builder& builder, const describe::Plan& of_plan, std::vector<Unit>& of_units,
                       bool tied_embeddings)
    : plan(of_plan),
      units(of_units),
      stage(effective_stage(plan)),
      partitions(partitions_of(plan)),
      data(builder.program().find_group(GroupKind::data_parallel)),
      computed_type(compute_type(plan.precision)),
      traffic(plan.overlap ? Stream::communication : Stream::compute),
      tied(tied_embeddings),
      states_space(plan.offload != Offload::none ? Space::host : Space::device),
      builder_(builder) {
  const bool fp32_parameters = plan.engine->fp32_parameters && (stage == 0 || stage == 3);
  parameter_type = fp32_parameters ? DataType::fp32 : computed_type;
  // An optimizer on the host needs a copy there of what it updates, also where the parameters are fp32.
  master = parameter_type != DataType::fp32 || plan.offload == Offload::optimizer;
  const bool fp32_gradients = (computed_type == DataType::fp16 && plan.engine->fp32_gradients_with_fp16) ||
                              (computed_type == DataType::bf16 && plan.engine->fp32_gradients_with_bf16);
  gradient_type = fp32_gradients ? DataType::fp32 : computed_type;
  const StepProgram& program = builder_.program();
  if (partitions > 1) {
    const GroupId shards = program.find_group(GroupKind::shard);
    shard = shards != kNoGroup ? shards : data;
    replica = program.find_group(GroupKind::replica);
    own_index = program.groups[shard].rank;
    secondary = program.find_group(GroupKind::secondary_shard);
  } else {
    replica = data;
  }
  unit_parts.resize(units.size());
  for (std::size_t i = 0; i < units.size(); ++i) declare_states(units[i], unit_parts[i]);
  declare_slots();
  declare_step();
}

Elements ZeroLayout::whole(const Unit& unit) const { return unit.partition * partitions; }

Elements ZeroLayout::secondary_elements(const Unit& unit) const {
  return div_exact(whole(unit), builder_.program().groups[secondary].size);
}

bool ZeroLayout::whole_at_stage_2() const { return stage == 2 && plan.engine->whole_gradients_at_stage_2; }

// Head and embedding add to a tied table in turn. Where micro-batches accumulate in the whole gradient, each
// one's two parts are first added apart, as where it goes through a slot: so all stages give the same bits.
bool ZeroLayout::sums_apart(const Unit& unit) const {
  return tied && unit.kind == Kind::embedding && !slots_for_gradients() && plan.engine->tied_gradient_apart &&
         plan.gradient_accumulation > 1;
}

bool ZeroLayout::held_through_micro_batch(const Unit& unit) const {
  return tied && unit.kind == Kind::embedding && (slots_for_gradients() || sums_apart(unit));
}

bool ZeroLayout::slots_for_gradients() const {
  return stage >= 2 && !(whole_at_stage_2() && plan.offload == Offload::none);
}

const UnitParts& ZeroLayout::parts_of(const Unit& unit) const {
  return unit_parts[static_cast<std::size_t>(&unit - units.data())];
}

Operand ZeroLayout::own_gradient(const Unit& unit) const {
  const UnitParts& parts = parts_of(unit);
  return at(parts.gradient != kNoBuffer ? parts.gradient : unit.gradient);
}

void ZeroLayout::declare_states(Unit& unit, UnitParts& parts) {
  const Instances each{unit.layers, unit.first_layer};
  const bool offload = plan.offload != Offload::none;
  const Elements own_offset = unit.partition * own_index;
  unit.parameter = builder_.buffer("parameter", parameter_type, Category::parameter,
                                   stage == 3 ? unit.partition : whole(unit), each,
                                   plan.offload == Offload::all ? Space::host : Space::device);
  unit.weights = unit.parameter;
  unit.shard = shard;
  unit.replica = replica;
  unit.parameter_is_partition = stage == 3 && partitions > 1;
  unit.gradient_is_partition = slots_for_gradients() && partitions > 1;
  if (secondary != kNoGroup) {
    parts.secondary = builder_.buffer("secondary_parameter", computed_type, Category::parameter,
                                      secondary_elements(unit), each);
  }
  if (stage == 1 || stage == 2) {
    parts.parameter = builder_.view("parameter.own", unit.parameter, own_offset, unit.partition);
  }

  const bool fp32_partition = plan.engine->fp32_gradient_partition && gradient_type != DataType::fp32 &&
                              (stage >= 1 || plan.engine->fp32_gradient_at_stage_0);
  const bool replaced =
      stage == 3 ? plan.engine->fp32_gradient_replaces_stage_3 : whole_at_stage_2() && offload;
  const bool only_fp32_partition = fp32_partition && replaced;
  if (slots_for_gradients()) {
    unit.gradient = builder_.buffer("gradient", only_fp32_partition ? DataType::fp32 : gradient_type,
                                    Category::gradient, unit.partition, each, states_space);
  } else {
    unit.gradient = builder_.buffer("gradient", gradient_type, Category::gradient, whole(unit), each);
    unit.weight_gradients = unit.gradient;
    if (stage >= 1) parts.gradient = builder_.view("gradient.own", unit.gradient, own_offset, unit.partition);
  }
  if (fp32_partition && !only_fp32_partition) {
    parts.fp32_gradient = builder_.reserve(builder_.buffer(
        "gradient.fp32", DataType::fp32, Category::gradient, unit.partition, each, states_space));
  }

  if (master) {
    unit.master = builder_.buffer("master", DataType::fp32, Category::optimizer_state, unit.partition, each,
                                  states_space);
  }
  for (std::size_t i = 0; i < plan.optimizer->parts.size() && i < unit.states.size(); ++i) {
    const describe::OptimizerPart& part = plan.optimizer->parts[i];
    DataType type = DataType::fp32;
    Elements elements = part.factored && partitions == 1 ? unit.factored : unit.partition;
    if (part.block_elements > 0 || part.bytes_per_parameter == 1) {
      type = DataType::uint8;
      elements *= part.bytes_per_parameter;
      if (part.block_elements > 0)
        elements += div_ceil(unit.partition, part.block_elements) * part.block_bytes;
    } else if (part.bytes_per_parameter == 2) {
      type = DataType::bf16;
    }
    unit.states[i] =
        builder_.buffer(state_name(part.name), type, Category::optimizer_state, elements, each, states_space);
  }
}

void ZeroLayout::declare_slots() {
  const std::int64_t layers = std::max<std::int64_t>(1, builder_.program().layers);
  const auto largest_layer = [this](const Unit& unit) {
    return unit.is_layer ? round_up(unit.working, partitions * plan.engine->partition_multiple) : 0;
  };
  if (stage == 3) {
    prefetch = std::min(plan.engine->prefetch_layers, layers - 1);
    gathered_ring = builder_.buffer("gathered", computed_type, Category::gathered, most(units, largest_layer),
                                    {prefetch + 1, 0});
  }
  if (slots_for_gradients()) {
    const Elements elements = most(units, largest_layer);
    std::int64_t slots = std::min<std::int64_t>(2, layers);
    Elements rest = 0;
    if (plan.engine->gradient_buckets > 0) {
      const bool beside = traffic != Stream::compute;
      const std::int64_t beside_kernels = beside ? plan.engine->overlapped_gradient_buckets : 0;
      const std::int64_t buckets =
          stage == 2 && beside_kernels > 0 ? beside_kernels : plan.engine->gradient_buckets;
      // A bucket holds as many layers as there is room for, which are reduced while it is filled again.
      const Elements room = buckets * (plan.bucket_bytes / bytes_of(gradient_type));
      const std::int64_t least = std::max(buckets, std::min(beside_kernels, layers));
      slots =
          std::clamp<std::int64_t>(room / std::max<Elements>(1, elements), least, std::max(least, layers));
      rest = std::max<Elements>(0, room - slots * elements);
    }
    gradient_ring = builder_.buffer("gradient_bucket", gradient_type, Category::bucket, elements, {slots, 0});
    gradient_ring_rest =
        builder_.reserve(builder_.buffer("gradient_bucket.rest", gradient_type, Category::bucket, rest));
  }
  for (std::size_t i = 0; i < units.size(); ++i) {
    Unit& unit = units[i];
    UnitParts& parts = unit_parts[i];
    // What is not described is moved piece by piece through a slot of its largest piece.
    const Elements piece = std::max<Elements>(1, whole_at_stage_2() ? 0 : unit.working);
    const Elements slot = unit.is_opaque() ? piece : whole(unit);
    if (stage == 3) {
      unit.weights = unit.is_layer ? builder_.view("weights", gathered_ring, 0, whole(unit))
                                   : builder_.buffer("gathered", computed_type, Category::gathered, slot);
      if (!unit.is_opaque()) {
        parts.weights =
            builder_.view("weights.own", unit.weights, own_index * unit.partition, unit.partition);
        if (secondary != kNoGroup) {
          parts.secondary_weights = builder_.view(
              "weights.secondary", unit.weights,
              builder_.program().groups[secondary].rank * secondary_elements(unit), secondary_elements(unit));
        }
      }
    }
    if (sums_apart(unit)) {
      unit.weight_gradients = builder_.buffer("gradient_bucket", gradient_type, Category::bucket, slot);
    }
    if (slots_for_gradients()) {
      unit.weight_gradients = unit.is_layer
                                  ? builder_.view("weight_gradients", gradient_ring, 0, whole(unit))
                                  : builder_.buffer("gradient_bucket", gradient_type, Category::bucket, slot);
      if (!unit.is_opaque()) {
        parts.weight_gradients = builder_.view("weight_gradients.own", unit.weight_gradients,
                                               own_index * unit.partition, unit.partition);
      }
    }
  }
}

void ZeroLayout::declare_step() {
  const bool offload = plan.offload != Offload::none;
  const auto partition = [](const Unit& unit) { return unit.partition; };
  // On the host the optimizer is one fused kernel, which copies no partition as a whole.
  const bool copies_partition = plan.engine->step_copies_whole_partition && !offload;
  if (plan.constant_buffers && !copies_partition) {
    step_bucket = builder_.buffer("step_bucket", DataType::fp32, Category::bucket,
                                  std::min(plan.bucket_bytes / 4, most(units, partition)), {}, states_space);
  } else if (plan.bucket_bytes > 0) {
    for (std::size_t i = 0; i < units.size(); ++i) {
      unit_parts[i].fused_gradient =
          builder_.buffer("fused_gradient", DataType::fp32, Category::bucket, units[i].partition,
                          {units[i].layers, units[i].first_layer}, states_space);
    }
  }
  if (!offload) return;
  // What is not described is staged piece by piece; an engine without buckets counts no staging.
  const auto staged = [this](const Unit& unit) {
    if (plan.bucket_bytes == 0) return Elements{1};
    return unit.is_opaque() ? std::max<Elements>(1, unit.working / partitions) : unit.partition;
  };
  if (stage == 1) {
    host_gradient = builder_.buffer("host_gradient", gradient_type, Category::gradient, most(units, staged),
                                    {}, Space::host);
  }
  if (plan.offload == Offload::optimizer) {
    host_parameter = builder_.buffer("host_parameter", parameter_type, Category::parameter,
                                     most(units, staged), {}, Space::host);
  }
}

}  // namespace zeroplan::program
