#include "planner/predict/prediction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "planner/program/compile.hpp"

namespace zeroplan::predict {

namespace {

using describe::Cluster;
using describe::Figure;
using describe::Plan;
using program::Category;

constexpr double kTera = 1e12;

Bytes whole_bytes(double bytes) { return static_cast<Bytes>(std::llround(bytes)); }

void add_overhead(Prediction& prediction, std::string name, const std::optional<Figure>& figure,
                  double times) {
  if (!figure || times == 0) return;
  prediction.overheads.push_back({std::move(name), whole_bytes(figure->value * times), figure->source});
}

void read_overheads(Prediction& prediction, const Plan& plan, const Cluster& cluster) {
  const describe::Overheads& device = cluster.device.overheads;
  add_overhead(prediction, "context", device.context_bytes, 1);
  add_overhead(prediction, "library_workspace", device.library_workspace_bytes, 1);
  const auto communicators = static_cast<double>(prediction.program.groups.size());
  add_overhead(prediction, "communicators", device.communicator_bytes, communicators);
  if (!plan.contiguous_memory && plan.engine.allocator_slack > 0) {
    const double slack = plan.engine.allocator_slack * static_cast<double>(prediction.memory.peak);
    prediction.overheads.push_back({"allocator", whole_bytes(slack), plan.engine.source});
  }
  for (const OverheadTerm& term : prediction.overheads) prediction.overhead_bytes += term.bytes;
}

// Parameters of the largest layer, embedding or head; of all tensor-parallel ranks.
Elements largest_unit(const describe::Model& model, const program::StepProgram& program) {
  Elements largest = model.only_largest_layer;
  for (const program::UnitPlacement& unit : program.units) {
    largest = std::max(largest, unit.elements * program.group(program::GroupKind::tensor_parallel).size);
  }
  return largest;
}

// What a node's host memory must hold: offloaded state, or a model on its way in, whichever is more.
void read_host(Prediction& prediction, const describe::Model& model, const Plan& plan,
               const Cluster& cluster) {
  const double processes = static_cast<double>(std::min(plan.devices(), cluster.devices_per_node));
  const double held = static_cast<double>(prediction.memory.host_peak);
  const Elements loaded = plan.engine.partitioned_loading ? largest_unit(model, prediction.program)
                                                          : prediction.program.parameters;
  const double load =
      static_cast<double>(plan.engine.host_load_bytes_per_parameter) * static_cast<double>(loaded);
  const double least = std::max(held, load);
  const double each = least * plan.engine.host_factor;
  prediction.host_bytes_per_node_least = whole_bytes(least * processes);
  prediction.host_bytes_per_device = whole_bytes(each);
  prediction.host_bytes_per_node = whole_bytes(each * processes);
  const Figure* memory = cluster.host_memory();
  if (memory == nullptr) return;
  // Ranks on processors live in that memory themselves.
  const Bytes taken =
      cluster.device.capacity.from_host_memory ? prediction.peak_bytes * static_cast<Bytes>(processes) : 0;
  prediction.host_capacity_bytes = std::max<Bytes>(0, whole_bytes(memory->value) - taken);
}

}  // namespace

Prediction predict(const describe::Model& model, const Plan& plan, const Cluster& cluster) {
  Prediction prediction;
  prediction.program = program::compile(model, plan);
  prediction.memory = read_memory(prediction.program);
  prediction.traffic = read_traffic(prediction.program);
  prediction.work = read_work(prediction.program);
  prediction.time = read_time(prediction.program, cluster, kernel_rates(cluster.device, plan));
  const double parameters_of_rank =
      static_cast<double>(prediction.program.parameters) / static_cast<double>(plan.tensor_parallel);
  prediction.traffic_psi = prediction.traffic.data_parallel_psi(parameters_of_rank);

  for (const Category category : {Category::parameter, Category::gradient, Category::optimizer_state}) {
    prediction.model_state_bytes += prediction.memory.persistent[static_cast<std::size_t>(category)];
  }
  read_overheads(prediction, plan, cluster);
  prediction.peak_bytes = prediction.memory.peak + prediction.overhead_bytes;
  prediction.capacity_bytes = cluster.device.capacity.usable_bytes() - plan.reserve_bytes;
  prediction.capacity_basis = cluster.device.capacity.basis();
  read_host(prediction, model, plan, cluster);
  Judgement judgement = judge(prediction, cluster);
  prediction.verdict = judgement.verdict;
  prediction.verdict_reason = std::move(judgement.reason);
  prediction.missing = std::move(judgement.missing);
  return prediction;
}

std::optional<TrainingStep> training_step(const Prediction& prediction, const Plan& plan,
                                          const describe::Device& device) {
  if (!has_time(prediction)) return std::nullopt;
  const std::optional<Figure>& peak = peak_tflops(device, plan.precision);
  return TrainingStep{prediction.time.seconds, prediction.work, prediction.program.tokens_per_step,
                      plan.global_batch(),     plan.devices(),  peak ? peak->value * kTera : 0,
                      plan.recompute};
}

std::string why_no_time(const Prediction& prediction, const Plan& plan, const Cluster& cluster) {
  if (prediction.does_not_fit()) return "the plan does not fit";
  if (prediction.time.is_known()) return {};
  if (prediction.program.states_only) return "only the number of parameters is known";
  const KernelRates rates = kernel_rates(cluster.device, plan);
  if (rates.matmul_flops_per_s <= 0) {
    return fmt::format("the description of {} has no peak in {}", cluster.device.name,
                       describe::name_of(plan.precision));
  }
  if (rates.memory_bytes_per_s <= 0) {
    return fmt::format("the description of {} has no memory bandwidth", cluster.device.name);
  }
  const bool has_network =
      cluster.node && cluster.node->internode_gbytes_per_s && cluster.node->internode_gbytes_per_s->value > 0;
  if (cluster.nodes > 1 && !has_network) {
    return fmt::format("the network between the {} nodes of {} is not described", cluster.nodes,
                       cluster.name);
  }
  return fmt::format("the links between the devices of {} are not described", cluster.name);
}

bool is_unproven(const describe::Engine& engine, const describe::Device& device) {
  return !device.capacity.from_host_memory && !engine.held_against_gpu_runs;
}

std::vector<std::string> time_conditions(const Prediction& prediction, const Plan& plan,
                                         const Cluster& cluster) {
  std::vector<std::string> conditions;
  if (!has_time(prediction)) return conditions;
  if (prediction.verdict == Verdict::cannot_say) {
    conditions.emplace_back("they hold only if the plan fits, which cannot be said");
  }
  if (is_unproven(plan.engine, cluster.device)) {
    conditions.push_back(
        fmt::format("{} has not run on GPUs, and no run stands behind its pace", plan.engine.name));
  }
  return conditions;
}

}  // namespace zeroplan::predict
