#include "planner/solve/changes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace zeroplan::solve {
namespace {

using describe::Cluster;
using describe::Offload;
using describe::Plan;
using describe::PlanOptions;

constexpr std::int64_t kMostDevices = 65536;
constexpr int kMostDoublings = 6;

std::vector<Change> zero_stages(int first, int last, std::string_view cost, const Plan& plan) {
  std::vector<Change> result;
  for (int stage = std::max(first, plan.zero_stage + 1); stage <= last; ++stage) {
    Change change{plan, fmt::format("ZeRO stage {}", stage), std::string(cost)};
    change.plan.zero_stage = stage;
    result.push_back(std::move(change));
  }
  return result;
}

std::vector<Change> smaller_micro_batches(const Plan& plan) {
  std::vector<Change> result;
  for (std::int64_t micro_batch = plan.micro_batch / 2; micro_batch >= 1; micro_batch /= 2) {
    if (plan.micro_batch % micro_batch != 0) continue;
    Change change{plan, fmt::format("micro-batch {}", micro_batch), "the same global batch in more passes"};
    change.plan.micro_batch = micro_batch;
    change.plan.gradient_accumulation *= plan.micro_batch / micro_batch;
    result.push_back(std::move(change));
  }
  return result;
}

std::vector<Change> full_recompute(const Plan& plan) {
  if (plan.recompute == describe::Recompute::full) return {};
  Change change{plan, "full recomputation", "about a third more compute"};
  change.plan.recompute = describe::Recompute::full;
  return {std::move(change)};
}

std::vector<Change> tensor_parallel(const Plan& plan, const Cluster& cluster) {
  std::vector<Change> result;
  for (std::int64_t degree = 2 * plan.tensor_parallel;
       degree <= std::min(cluster.devices_per_node, plan.devices()); degree *= 2) {
    if (plan.devices() % degree != 0) continue;
    result.push_back({with_tensor_parallel(plan, degree), fmt::format("tensor parallel {}", degree),
                      "all-reduces of activations in every layer"});
  }
  return result;
}

std::vector<Change> partition_activations(const Plan& plan, bool to_host) {
  if (plan.tensor_parallel == 1) return {};
  if (to_host ? plan.offload_activations : plan.partition_activations) return {};
  Change change{plan, to_host ? "P_a+cpu" : "P_a",
                to_host ? "checkpoints go over PCIe" : "an all-gather of each checkpoint"};
  change.plan.partition_activations = true;
  change.plan.offload_activations = to_host;
  if (plan.recompute != describe::Recompute::full) {
    change.plan.recompute = describe::Recompute::full;
    change.what += " with full recomputation";
    change.cost += ", about a third more compute";
  }
  return {std::move(change)};
}

std::vector<Change> offload(const Plan& plan, Offload kind) {
  if (static_cast<int>(plan.offload) >= static_cast<int>(kind)) return {};
  const bool all = kind == Offload::all;
  const int least_stage = all ? 3 : 1;
  Change change{plan, all ? "offload of states and parameters" : "offload of the optimizer",
                all ? "states and parameters in host memory" : "the optimizer runs on the host"};
  change.plan.offload = kind;
  if (plan.zero_stage < least_stage) {
    change.plan.zero_stage = least_stage;
    change.what += fmt::format(" with ZeRO stage {}", least_stage);
  }
  return {std::move(change)};
}

std::vector<Change> more_devices(const Plan& plan) {
  std::vector<Change> result;
  std::int64_t times = 1;
  for (int i = 0; i < kMostDoublings && plan.devices() * times <= kMostDevices / 2; ++i) {
    times *= 2;
    Change change{plan, fmt::format("{} devices", plan.devices() * times),
                  fmt::format("{} more devices", plan.devices() * (times - 1))};
    change.plan.data_parallel *= times;
    if (plan.gradient_accumulation % times == 0) {
      change.plan.gradient_accumulation /= times;
    } else {
      change.cost += ", a larger global batch";
    }
    result.push_back(std::move(change));
  }
  return result;
}

}  // namespace

Plan with_tensor_parallel(Plan plan, std::int64_t degree) {
  const std::int64_t batch = plan.global_batch();
  const std::int64_t devices = plan.devices();
  plan.tensor_parallel = degree;
  plan.data_parallel = div_exact(devices, degree);
  const std::int64_t pass = plan.micro_batch * plan.data_parallel;
  if (batch % pass == 0) plan.gradient_accumulation = batch / pass;
  return plan;
}

bool replaces(ChangeKind later, ChangeKind earlier) {
  return (later == ChangeKind::zero_stage_3 && earlier == ChangeKind::zero_stage_1_or_2) ||
         (later == ChangeKind::offload_activations && earlier == ChangeKind::partition_activations) ||
         (later == ChangeKind::offload_all && earlier == ChangeKind::offload_optimizer);
}

std::vector<Change> changes(ChangeKind kind, const Plan& plan, const Cluster& cluster) {
  switch (kind) {
    case ChangeKind::zero_stage_1_or_2:
      return zero_stages(1, 2, "no more traffic", plan);
    case ChangeKind::smaller_micro_batch:
      return smaller_micro_batches(plan);
    case ChangeKind::full_recompute:
      return full_recompute(plan);
    case ChangeKind::zero_stage_3:
      return zero_stages(3, 3, "1.5x the data-parallel traffic", plan);
    case ChangeKind::tensor_parallel:
      return tensor_parallel(plan, cluster);
    case ChangeKind::partition_activations:
      return partition_activations(plan, false);
    case ChangeKind::offload_activations:
      return partition_activations(plan, true);
    case ChangeKind::offload_optimizer:
      return offload(plan, Offload::optimizer);
    case ChangeKind::offload_all:
      return offload(plan, Offload::all);
    case ChangeKind::more_devices:
      return more_devices(plan);
  }
  return {};
}

PlanOptions options_for(const Plan& plan, const Plan& start, PlanOptions options) {
  if (plan.zero_stage != start.zero_stage) options.zero = plan.zero_stage;
  if (plan.recompute != start.recompute) options.recompute = plan.recompute;
  if (plan.offload != start.offload) options.offload = plan.offload;
  if (plan.partition_activations != start.partition_activations) {
    options.partition_activations = plan.partition_activations;
  }
  if (plan.offload_activations != start.offload_activations)
    options.offload_activations = plan.offload_activations;
  if (plan.tensor_parallel != start.tensor_parallel || plan.devices() != start.devices()) {
    options.gpus = plan.devices();
    if (plan.devices() != start.devices()) options.nodes.reset();
    options.dp.reset();
    if (plan.tensor_parallel != start.tensor_parallel) options.tp = plan.tensor_parallel;
  }
  if (plan.micro_batch != start.micro_batch) options.micro_batch = plan.micro_batch;
  if (plan.micro_batch != start.micro_batch || plan.gradient_accumulation != start.gradient_accumulation ||
      plan.data_parallel != start.data_parallel) {
    // A micro-batch that followed from the global batch would not follow any more.
    if (options.global_batch && plan.micro_batch != 1) options.micro_batch = plan.micro_batch;
    options.global_batch.reset();
    options.grad_accum.reset();
    if (plan.gradient_accumulation != 1) options.grad_accum = plan.gradient_accumulation;
  }
  return options;
}

PlanOptions as_on_command_line(PlanOptions options, const Plan& plan) {
  if (options.bucket_elements || options.bucket_from_hidden) {
    if (!options.bucket && plan.constant_buffers) options.bucket = plan.bucket_bytes;
    options.bucket_elements.reset();
    options.bucket_from_hidden = false;
  }
  return options;
}

}  // namespace zeroplan::solve
