#include "planner/program/unit.hpp"

#include <algorithm>

namespace zeroplan::program {

namespace {

using describe::ParameterTensor;
using describe::Sharding;

LocalTensor localize(const ParameterTensor& tensor, const describe::Model& model,
                     const describe::Plan& plan) {
  const std::int64_t ranks = plan.tensor_parallel;
  LocalTensor local{.name = tensor.name,
                    .outputs = tensor.outputs,
                    .inputs = tensor.inputs,
                    .copies = tensor.copies,
                    .whole_outputs = tensor.outputs,
                    .whole_inputs = tensor.inputs};
  switch (tensor.sharding) {
    case Sharding::replicated:
      local.replicated = true;
      break;
    case Sharding::column:
      local.outputs = div_ceil(tensor.outputs, ranks);
      local.divides_outputs = true;
      break;
    case Sharding::row:
      local.inputs = div_ceil(tensor.inputs, ranks);
      local.divides_inputs = true;
      break;
    case Sharding::vocabulary:
      local.outputs = local_rows(tensor.outputs, plan);
      local.divides_outputs = true;
      break;
    case Sharding::key_value:
      local.outputs = div_ceil(tensor.outputs, std::min(ranks, model.kv_heads));
      local.divides_outputs = ranks <= model.kv_heads;
      break;
  }
  return local;
}

// Offsets in the order that Unit documents, and the sums.
void lay_out(Unit& unit) {
  const auto rank_of = [](const LocalTensor& tensor) {
    return (tensor.replicated ? 2 : 0) + (tensor.inputs == 1 ? 1 : 0);
  };
  for (int rank = 0; rank < 4; ++rank) {
    for (LocalTensor& tensor : unit.tensors) {
      if (rank_of(tensor) != rank) continue;
      tensor.offset = unit.elements;
      unit.elements += tensor.elements();
      unit.factored +=
          tensor.inputs == 1 ? tensor.elements() : (tensor.outputs + tensor.inputs) * tensor.copies;
    }
    if (rank == 1) unit.distinct = unit.elements;
  }
  unit.working = unit.elements;
}

void divide(Unit& unit, std::int64_t partitions, std::int64_t multiple, RankPosition rank) {
  unit.partition = unit.elements;
  unit.owned = unit.elements;
  unit.owned_distinct = unit.distinct;
  if (partitions <= 1) return;
  unit.partition = round_up(div_ceil(unit.elements, partitions), multiple);
  const Elements begin = unit.partition * (rank.data_parallel % partitions);
  unit.owned = std::clamp<Elements>(unit.elements - begin, 0, unit.partition);
  unit.owned_distinct = std::clamp<Elements>(unit.distinct - begin, 0, unit.partition);
}

bool is_of_layers(describe::ParameterGroup::Kind kind) {
  using Kind = describe::ParameterGroup::Kind;
  return kind != Kind::embedding && kind != Kind::head && kind != Kind::extra;
}

}  // namespace

const LocalTensor* Unit::find(std::string_view name) const {
  for (std::size_t tried = 0; tried < tensors.size(); ++tried) {
    if (next_ >= tensors.size()) next_ = 0;
    const LocalTensor& tensor = tensors[next_++];
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

Elements local_rows(Elements rows, const describe::Plan& plan) {
  const Elements padded = round_up(rows, plan.engine->vocabulary_multiple * plan.tensor_parallel);
  return padded / plan.tensor_parallel;
}

Units make_units(const describe::Model& model, const describe::Plan& plan, std::int64_t partitions,
                 RankPosition rank) {
  Units result;
  std::vector<Unit>& units = result.units;
  if (!model.is_shape()) {
    Unit& unit = units.emplace_back();
    unit.kind = describe::ParameterGroup::Kind::extra;
    unit.elements = div_ceil(model.only_parameters, plan.tensor_parallel);
    unit.distinct = unit.elements;
    unit.working = div_ceil(model.only_largest_layer, plan.tensor_parallel);
    divide(unit, partitions, plan.engine->partition_multiple, rank);
    result.parameters = model.only_parameters;
    result.active_parameters = model.only_parameters;
    return result;
  }
  const std::vector<describe::ParameterGroup> groups = describe::parameter_groups(model, plan.sequence);
  units.reserve(groups.size());
  std::int64_t layer = 0;
  for (const describe::ParameterGroup& group : groups) {
    result.parameters += group.layers * group.elements_per_layer();
    Unit& unit = units.emplace_back();
    unit.kind = group.kind;
    unit.is_layer = is_of_layers(group.kind);
    unit.layers = group.layers;
    unit.tensors.reserve(group.tensors.size());
    for (const ParameterTensor& tensor : group.tensors) unit.tensors.push_back(localize(tensor, model, plan));
    lay_out(unit);
    divide(unit, partitions, plan.engine->partition_multiple, rank);
    if (unit.is_layer) {
      unit.first_layer = narrow<std::int32_t>(layer);
      layer += group.layers;
    }
    if (unit.is_opaque()) unit.working = 0;
  }
  const bool all_active = !model.experts && model.extra.empty();
  result.active_parameters =
      all_active ? result.parameters : describe::count_active_parameters(model, plan.sequence);
  return result;
}

}  // namespace zeroplan::program
