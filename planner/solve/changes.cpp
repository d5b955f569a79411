#include "planner/solve/changes.hpp"

#include <fmt/format.h>

#include <utility>

namespace zeroplan::solve {
namespace {

using describe::Offload;
using describe::Plan;
using describe::PlanOptions;
using describe::ResolvedPlan;

constexpr std::int64_t kMostDevices = 65536;
constexpr int kMostDoublings = 6;

std::vector<Change> zero_stages(int first, int last, std::string_view cost, const PlanOptions& options,
                                const Plan& plan) {
  std::vector<Change> result;
  for (int stage = std::max(first, plan.zero_stage + 1); stage <= last; ++stage) {
    Change change{options, fmt::format("ZeRO stage {} instead of {}", stage, plan.zero_stage),
                  std::string(cost)};
    change.options.zero = stage;
    result.push_back(std::move(change));
  }
  return result;
}

std::vector<Change> smaller_micro_batches(const PlanOptions& options, const Plan& plan) {
  std::vector<Change> result;
  for (std::int64_t micro_batch = plan.micro_batch / 2; micro_batch >= 1; micro_batch /= 2) {
    if (plan.micro_batch % micro_batch != 0) continue;
    Change change{options, fmt::format("micro-batch {} instead of {}", micro_batch, plan.micro_batch),
                  "the same global batch in more passes"};
    change.options.micro_batch = micro_batch;
    change.options.grad_accum = plan.gradient_accumulation * (plan.micro_batch / micro_batch);
    change.options.global_batch.reset();
    result.push_back(std::move(change));
  }
  return result;
}

std::vector<Change> full_recompute(const PlanOptions& options, const Plan& plan) {
  if (plan.recompute == describe::Recompute::full) return {};
  Change change{options, "full recomputation", "about a third more compute"};
  change.options.recompute = describe::Recompute::full;
  return {change};
}

std::vector<Change> tensor_parallel(const PlanOptions& options, const ResolvedPlan& resolved) {
  std::vector<Change> result;
  const Plan& plan = resolved.plan;
  for (std::int64_t degree = 2 * plan.tensor_parallel; degree <= resolved.cluster.devices_per_node;
       degree *= 2) {
    result.push_back({with_tensor_parallel(options, resolved, degree),
                      fmt::format("tensor parallel {} instead of {}", degree, plan.tensor_parallel),
                      "all-reduces of activations in every layer, inside a node"});
  }
  return result;
}

std::vector<Change> partition_activations(const PlanOptions& options, const ResolvedPlan& resolved,
                                          bool to_host) {
  const Plan& plan = resolved.plan;
  if (to_host ? plan.offload_activations : plan.partition_activations) return {};
  Change change{options, to_host ? "P_a+cpu" : "P_a",
                to_host ? "checkpoints go over PCIe" : "an all-gather of each checkpoint"};
  if (plan.tensor_parallel == 1) return {};
  change.options.partition_activations = true;
  if (to_host) change.options.offload_activations = true;
  if (plan.recompute != describe::Recompute::full) {
    change.options.recompute = describe::Recompute::full;
    change.what += " with full recomputation";
    change.cost += ", a third more compute";
  }
  return {change};
}

std::vector<Change> offload(const PlanOptions& options, const Plan& plan, Offload kind) {
  if (static_cast<int>(plan.offload) >= static_cast<int>(kind)) return {};
  const bool all = kind == Offload::all;
  const int least_stage = all ? 3 : 1;
  Change change{options, all ? "offload of states and parameters" : "offload of the optimizer",
                all ? "states and parameters in host memory" : "the optimizer runs on the host"};
  change.options.offload = kind;
  if (plan.zero_stage < least_stage) {
    change.options.zero = least_stage;
    change.what += fmt::format(" with ZeRO stage {}", least_stage);
  }
  return {change};
}

std::vector<Change> more_devices(const PlanOptions& options, const ResolvedPlan& resolved) {
  std::vector<Change> result;
  const std::int64_t devices = resolved.plan.devices();
  std::int64_t more = devices;
  for (int i = 0; i < kMostDoublings && more <= kMostDevices / 2; ++i) {
    more *= 2;
    Change change{with_fixed_devices(options, resolved),
                  fmt::format("{} devices instead of {}", more, devices),
                  fmt::format("{} more devices", more - devices)};
    change.options.gpus = more;
    result.push_back(std::move(change));
  }
  return result;
}

}  // namespace

PlanOptions with_fixed_devices(PlanOptions options, const ResolvedPlan& resolved) {
  options.gpus = resolved.plan.devices();
  options.nodes.reset();
  options.dp.reset();
  if (options.bucket_elements || options.bucket_from_hidden) {
    options.bucket = resolved.plan.bucket_bytes;
    options.bucket_elements.reset();
    options.bucket_from_hidden = false;
  }
  return options;
}

PlanOptions with_tensor_parallel(PlanOptions options, const ResolvedPlan& resolved, std::int64_t degree) {
  const Plan& plan = resolved.plan;
  options = with_fixed_devices(std::move(options), resolved);
  options.tp = degree;
  const std::int64_t data_parallel = plan.devices() / degree;
  if (data_parallel > 0 && plan.devices() % degree == 0 &&
      plan.global_batch() % (plan.micro_batch * data_parallel) == 0) {
    const std::int64_t passes = plan.global_batch() / (plan.micro_batch * data_parallel);
    options.global_batch.reset();
    options.grad_accum.reset();
    if (passes > 1) options.grad_accum = passes;
  }
  return options;
}

std::vector<Change> changes(ChangeKind kind, const PlanOptions& options, const ResolvedPlan& resolved) {
  const Plan& plan = resolved.plan;
  switch (kind) {
    case ChangeKind::zero_stage_1_or_2:
      return zero_stages(1, 2, "no more traffic", options, plan);
    case ChangeKind::smaller_micro_batch:
      return smaller_micro_batches(options, plan);
    case ChangeKind::full_recompute:
      return full_recompute(options, plan);
    case ChangeKind::zero_stage_3:
      return zero_stages(3, 3, "1.5x the data-parallel traffic", options, plan);
    case ChangeKind::tensor_parallel:
      return tensor_parallel(options, resolved);
    case ChangeKind::partition_activations:
      return partition_activations(options, resolved, false);
    case ChangeKind::offload_activations:
      return partition_activations(options, resolved, true);
    case ChangeKind::offload_optimizer:
      return offload(options, plan, Offload::optimizer);
    case ChangeKind::offload_all:
      return offload(options, plan, Offload::all);
    case ChangeKind::more_devices:
      return more_devices(options, resolved);
  }
  return {};
}

}  // namespace zeroplan::solve
