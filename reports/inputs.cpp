#include "reports/inputs.hpp"

#include <fmt/format.h>

#include "planner/predict/prediction.hpp"
#include "planner/program/approximations.hpp"
#include "reports/approximations.hpp"
#include "reports/numbers.hpp"

namespace zeroplan::reports {

using describe::Plan;

namespace {

Data sizes_of_batch(const Plan& plan, Data data) {
  return std::move(data.set("micro_batch", plan.micro_batch)
                       .set("gradient_accumulation", plan.gradient_accumulation)
                       .set("global_batch", plan.global_batch())
                       .set("sequence", plan.sequence));
}

std::string activation_text(const Plan& plan) {
  std::string text = fmt::format("recompute {}", describe::name_of(plan.recompute));
  if (plan.recompute == describe::Recompute::full && plan.checkpoint_interval > 1) {
    text += fmt::format(" every {} layers", plan.checkpoint_interval);
  }
  text += fmt::format(", {} attention", describe::name_of(plan.attention));
  if (plan.dropout) text += ", dropout";
  if (plan.offload_activations) {
    text += ", P_a+cpu";
  } else if (plan.partition_activations) {
    text += ", P_a";
  }
  return text;
}

std::vector<std::string> notes_of(const describe::Model& model, const describe::ResolvedPlan& resolved) {
  std::vector<std::string> notes = model.notes;
  notes.insert(notes.end(), resolved.notes.begin(), resolved.notes.end());
  return notes;
}

}  // namespace

Data machine_data(const describe::Cluster& cluster) {
  return Data::map()
      .set("name", cluster.name)
      .set("device", cluster.device->name)
      .set("nodes", cluster.nodes)
      .set("devices_per_node", cluster.devices_per_node)
      .set("devices", cluster.devices())
      .set("source", cluster.description_source);
}

Data plan_data(const Plan& plan) {
  Data data = Data::map()
                  .set("data_parallel", plan.data_parallel)
                  .set("tensor_parallel", plan.tensor_parallel)
                  .set("zero_stage", plan.zero_stage)
                  .set("shard", plan.shard_ranks())
                  .set("secondary_shard", plan.secondary_shard);
  data = sizes_of_batch(plan, std::move(data));
  data.set("precision", describe::name_of(plan.precision))
      .set("optimizer", plan.optimizer->name)
      .set("recompute", describe::name_of(plan.recompute))
      .set("checkpoint_interval", plan.checkpoint_interval)
      .set("attention", describe::name_of(plan.attention))
      .set("dropout", plan.dropout)
      .set("partition_activations", plan.partition_activations)
      .set("offload_activations", plan.offload_activations)
      .set("offload", describe::name_of(plan.offload))
      .set("constant_buffers", plan.constant_buffers)
      .set("bucket_bytes", plan.bucket_bytes)
      .set("contiguous_memory", plan.contiguous_memory)
      .set("overlap", plan.overlap)
      .set("engine", plan.engine->name)
      .set("reserve_bytes", plan.reserve_bytes);
  return data;
}

Data assumed_data(const std::vector<describe::Assumption>& assumptions) {
  Data list = Data::list();
  for (const describe::Assumption& assumption : assumptions) {
    list.add(Data::map()
                 .set("key", assumption.key)
                 .set("value", assumption.value)
                 .set("reason", assumption.reason));
  }
  return list;
}

Data notes_data(const describe::Model& model, const describe::ResolvedPlan& resolved) {
  return texts_data(notes_of(model, resolved));
}

std::string model_line(const describe::Model& model, std::int64_t sequence) {
  const std::int64_t parameters = describe::count_parameters(model, sequence);
  std::string text =
      fmt::format("{}: {} parameters ({})", model.name, thousands(parameters), short_count(parameters));
  if (!model.is_shape()) return text + "; model states and traffic only";
  text += fmt::format(", {} layers, hidden {}, {} heads", model.encoder_layers + model.layers, model.hidden,
                      model.heads);
  if (model.experts) text += fmt::format(", {} experts", model.experts->experts);
  return text;
}

std::string machine_line(const describe::Cluster& cluster) {
  if (!cluster.node && cluster.nodes == 1) {
    return fmt::format("{} x {}", cluster.devices(), cluster.device->name);
  }
  const bool is_assumed = cluster.node && cluster.assumed_node;
  return fmt::format("{}: {} of {} x {}", is_assumed ? cluster.node->name + ", assumed" : cluster.name,
                     counted(cluster.nodes, "node"), cluster.devices_per_node, cluster.device->name);
}

std::string layout_line(const Plan& plan) {
  std::string zero = fmt::format("ZeRO-{}", plan.zero_stage);
  if (plan.shard > 0) zero += fmt::format(" over {} ranks", plan.shard);
  if (plan.secondary_shard > 0) zero += fmt::format(" and hpZ over {}", plan.secondary_shard);
  std::string text = fmt::format("{}, dp {} x tp {}, {}, {}", zero, plan.data_parallel, plan.tensor_parallel,
                                 describe::name_of(plan.precision), plan.optimizer->name);
  if (plan.offload != describe::Offload::none)
    text += fmt::format(", offload {}", describe::name_of(plan.offload));
  return text;
}

std::string engine_line(const describe::ResolvedPlan& resolved) {
  const Plan& plan = resolved.plan;
  const bool unproven = predict::is_unproven(plan.engine, resolved.cluster.device);
  return fmt::format("{}{}, {}", plan.engine->name, unproven ? " (has not run on GPUs)" : "",
                     activation_text(plan));
}

std::string batch_line(const Plan& plan) {
  return fmt::format("{} of {} tokens = micro-batch {} x accumulation {} x dp {}",
                     counted(plan.global_batch(), "sequence"), plan.sequence, plan.micro_batch,
                     plan.gradient_accumulation, plan.data_parallel);
}

Data inputs_data(const describe::Model& model, const describe::ResolvedPlan& resolved) {
  return Data::map()
      .set("model", model_data(model, resolved.plan.sequence))
      .set("machine", machine_data(resolved.cluster))
      .set("plan", plan_data(resolved.plan));
}

void add_inputs(std::vector<Block>& blocks, const describe::Model& model,
                const describe::ResolvedPlan& resolved) {
  Table table{{{"", false}, {"", false}}, {}, {}};
  table.rows.push_back({std::string("model"), model_line(model, resolved.plan.sequence)});
  table.rows.push_back({std::string("machine"), machine_line(resolved.cluster)});
  table.rows.push_back({std::string("plan"), layout_line(resolved.plan)});
  table.rows.push_back({std::string("engine"), engine_line(resolved)});
  table.rows.push_back({std::string("batch"), batch_line(resolved.plan)});
  blocks.emplace_back(std::move(table));
}

void add_assumptions(std::vector<Block>& blocks, const describe::Model& model,
                     const describe::ResolvedPlan& resolved) {
  add_approximations(blocks, program::approximations_of(model));
  add_notes(blocks, notes_of(model, resolved));
  if (resolved.assumptions.empty()) return;
  blocks.emplace_back(Heading{"Assumed (not given)"});
  Table table{{{"", false}, {"", false}, {"", false}}, {}, {}};
  for (const describe::Assumption& assumption : resolved.assumptions) {
    table.rows.push_back({assumption.key, assumption.value, assumption.reason});
  }
  blocks.emplace_back(std::move(table));
}

}  // namespace zeroplan::reports
