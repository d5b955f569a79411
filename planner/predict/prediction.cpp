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

// What of a device the engine asks for comes in multiples of this; 1 where nobody says.
Bytes driver_granule(const Plan& plan, const describe::Device& device) {
  const std::optional<Figure>& round = device.overheads.allocator_round_bytes;
  return plan.engine->allocates_from_driver && round ? whole_bytes(round->value) : 1;
}

// Calls visit(name, bytes, source) for each term of memory that a program with this peak does not acquire.
template <class Visit>
void for_each_overhead(Bytes peak, std::size_t groups, const Plan& plan, const Cluster& cluster,
                       Visit&& visit) {
  const describe::Overheads& device = cluster.device->overheads;
  const auto add = [&](std::string_view name, const std::optional<Figure>& figure, double times) {
    if (figure && times > 0) visit(name, whole_bytes(figure->value * times), figure->source);
  };
  add("context", device.context_bytes, 1);
  add("library_workspace", device.library_workspace_bytes, 1);
  add("communicators", device.communicator_bytes, static_cast<double>(groups));
  if (!plan.contiguous_memory && plan.engine->allocator_slack > 0) {
    visit("allocator", whole_bytes(plan.engine->allocator_slack * static_cast<double>(peak)),
          plan.engine->source);
  }
  const Bytes granule = driver_granule(plan, cluster.device);
  if (const Bytes rounded = round_up(peak, granule); rounded > peak) {
    visit("granularity", rounded - peak, device.allocator_round_bytes->source);
  }
}

// Parameters of the largest layer, embedding or head; of all tensor-parallel ranks.
Elements largest_unit(const describe::Model& model, const program::StepProgram& program) {
  Elements largest = model.only_largest_layer;
  for (const program::UnitPlacement& unit : program.units) {
    largest = std::max(largest, unit.elements * program.group(program::GroupKind::tensor_parallel).size);
  }
  return largest;
}

}  // namespace

MemoryNeed memory_need(const program::StepProgram& program, const MemoryProfile& memory,
                       const describe::Model& model, const Plan& plan, const Cluster& cluster) {
  MemoryNeed need;
  for_each_overhead(memory.peak, program.groups.size(), plan, cluster,
                    [&](std::string_view, Bytes bytes, const std::string&) { need.overheads += bytes; });
  need.peak = memory.peak + need.overheads;
  need.capacity = cluster.device->capacity.usable_bytes() - plan.reserve_bytes;
  need.is_lower_bound = program.states_only;
  // A node's host memory must hold offloaded state, or a model on its way in, whichever is more.
  need.host_states = memory.host_peak;
  const double processes = static_cast<double>(std::min(plan.devices(), cluster.devices_per_node));
  const Elements loaded =
      plan.engine->partitioned_loading ? largest_unit(model, program) : program.parameters;
  const double load =
      static_cast<double>(plan.engine->host_load_bytes_per_parameter) * static_cast<double>(loaded);
  const double least = std::max(static_cast<double>(memory.host_peak), load);
  const double each = least * plan.engine->host_factor;
  need.host_per_node_least = whole_bytes(least * processes);
  need.host_per_device = whole_bytes(each);
  need.host_per_node = whole_bytes(each * processes);
  const Figure* host = cluster.host_memory();
  if (host == nullptr) return need;
  // Ranks on processors live in that memory themselves.
  const Bytes taken =
      cluster.device->capacity.from_host_memory ? need.peak * static_cast<Bytes>(processes) : 0;
  need.host_capacity = std::max<Bytes>(0, whole_bytes(host->value) - taken);
  return need;
}

Prediction predict(const describe::Model& model, const Plan& plan, const Cluster& cluster) {
  Prediction prediction;
  StagePrediction& stage = prediction.stages.front();
  stage.program = program::compile(model, plan);
  stage.memory = read_memory(stage.program);
  stage.traffic = read_traffic(stage.program);
  stage.work = read_work(stage.program);
  prediction.time = read_time(stage.program, cluster, kernel_rates(cluster.device, plan));
  const double parameters_of_rank =
      static_cast<double>(prediction.program().parameters) / static_cast<double>(plan.tensor_parallel);
  prediction.traffic_psi = prediction.traffic().data_parallel_psi(parameters_of_rank);

  for (const Category category : {Category::parameter, Category::gradient, Category::optimizer_state}) {
    prediction.model_state_bytes += prediction.memory().persistent[static_cast<std::size_t>(category)];
  }
  for_each_overhead(prediction.memory().peak, prediction.program().groups.size(), plan, cluster,
                    [&](std::string_view name, Bytes bytes, const std::string& source) {
                      prediction.overheads.push_back({std::string(name), bytes, source});
                    });
  const MemoryNeed need = memory_need(prediction.program(), prediction.memory(), model, plan, cluster);
  prediction.need = need;
  prediction.driver_granule = driver_granule(plan, cluster.device);
  prediction.overhead_bytes = need.overheads;
  prediction.peak_bytes = need.peak;
  prediction.capacity_bytes = need.capacity;
  prediction.capacity_basis = cluster.device->capacity.basis();
  prediction.host_bytes_per_device = need.host_per_device;
  prediction.host_bytes_per_node = need.host_per_node;
  prediction.host_bytes_per_node_least = need.host_per_node_least;
  prediction.host_capacity_bytes = need.host_capacity;
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
  return TrainingStep{prediction.time.seconds, prediction.work(), prediction.program().tokens_per_step,
                      plan.global_batch(),     plan.devices(),    peak ? peak->value * kTera : 0,
                      plan.recompute};
}

std::string why_no_time(const Prediction& prediction, const Plan& plan, const Cluster& cluster) {
  if (prediction.does_not_fit()) return "the plan does not fit";
  if (prediction.time.is_known()) return {};
  if (prediction.program().states_only) return "only the number of parameters is known";
  const KernelRates rates = kernel_rates(cluster.device, plan);
  if (rates.matmul_flops_per_s <= 0) {
    return fmt::format("the description of {} has no peak in {}", cluster.device->name,
                       describe::name_of(plan.precision));
  }
  if (rates.memory_bytes_per_s <= 0) {
    return fmt::format("the description of {} has no memory bandwidth", cluster.device->name);
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
        fmt::format("{} has not run on GPUs, and no run stands behind its pace", plan.engine->name));
  }
  return conditions;
}

}  // namespace zeroplan::predict
