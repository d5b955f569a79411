#include "planner/describe/plan/resolve_degrees.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "planner/describe/text/nearest_value.hpp"

namespace zeroplan::describe {
namespace {

void refuse(Resolution& resolution, std::string_view key, std::string message) {
  resolution.problems.add({option_name(key), 0, "", std::move(message)});
}

std::optional<Cluster> try_cluster(Resolution& resolution, const std::string& hardware,
                                   std::optional<std::int64_t> gpus) {
  try {
    return resolve_cluster(hardware, resolution.options.nodes, gpus);
  } catch (const ConfigurationError& error) {
    resolution.problems.add(error);
    return std::nullopt;
  }
}

// The number of devices where the user does not give it; `machine` is what --hw and --nodes alone come to.
std::int64_t count_devices(Resolution& resolution, const Cluster& machine) {
  const PlanOptions& options = resolution.options;
  const std::int64_t whole = machine.devices();
  const std::int64_t tp = options.tp.value_or(1);
  // A device alone comes in any number.
  const bool bare = machine.assumed_node || machine.device->capacity.from_host_memory;
  if (options.dp && (!options.nodes || bare)) {
    const std::int64_t gpus = *options.dp * tp;
    resolution.assume("gpus", gpus, "dp x tp");
    return gpus;
  }
  if (options.nodes && !bare) {
    resolution.assume("gpus", whole, fmt::format("{} nodes of {}", *options.nodes, machine.node->name));
    return whole;
  }
  if (bare || tp > whole) {
    const std::int64_t gpus = std::lcm(whole, tp);
    resolution.assume("gpus", gpus, gpus == 1 ? "one device" : "what nodes and tp need");
    return gpus;
  }
  resolution.assume("gpus", whole, fmt::format("the whole of {}", machine.name));
  return whole;
}

void divide_devices(Resolution& resolution, std::int64_t gpus) {
  const PlanOptions& options = resolution.options;
  Plan& plan = resolution.plan;
  plan.data_parallel = options.dp.value_or(1);
  plan.tensor_parallel = options.tp.value_or(1);
  if (options.dp && options.tp) {
    if (plan.devices() == gpus) return;
    refuse(resolution, options.gpus ? "gpus" : "dp",
           fmt::format("found {} GPUs, expected dp x tp = {} x {} = {}", gpus, plan.data_parallel,
                       plan.tensor_parallel, plan.devices()));
    return;
  }
  const std::string_view known = options.dp ? "dp" : "tp";
  const std::int64_t degree = options.dp ? plan.data_parallel : plan.tensor_parallel;
  std::int64_t& open = options.dp ? plan.tensor_parallel : plan.data_parallel;
  if (gpus % degree != 0) {
    const std::string rule = fmt::format("{} GPUs are not a multiple of --{} {}", gpus, known, degree);
    if (options.gpus) {
      refuse(resolution, "gpus", fmt::format("{}; nearest: {}", rule, nearest_multiples(gpus, degree)));
    } else {
      const auto divides = [&](std::int64_t value) { return gpus % value == 0; };
      refuse(resolution, known, fmt::format("{}; nearest: {}", rule, nearest_values(degree, gpus, divides)));
    }
    return;
  }
  open = gpus / degree;
  if (!options.tp && !options.dp) resolution.assume("tp", plan.tensor_parallel, "no tensor parallelism");
  resolution.assume(options.dp ? "tp" : "dp", open, fmt::format("gpus / {}", known));
}

}  // namespace

void Resolution::assume(std::string_view key, std::string_view value, std::string reason) {
  assumptions.push_back({std::string(key), std::string(value), std::move(reason)});
}

void Resolution::assume(std::string_view key, std::int64_t value, std::string reason) {
  assume(key, std::to_string(value), std::move(reason));
}

std::optional<Cluster> resolve_degrees(Resolution& resolution, const std::string& hardware) {
  const PlanOptions& options = resolution.options;
  std::optional<Cluster> cluster = try_cluster(resolution, hardware, options.gpus);
  if (!cluster) {
    resolution.plan.data_parallel = options.dp.value_or(1);
    resolution.plan.tensor_parallel = options.tp.value_or(1);
    return std::nullopt;
  }
  const std::int64_t gpus = options.gpus ? *options.gpus : count_devices(resolution, *cluster);
  if (gpus != cluster->devices()) cluster = try_cluster(resolution, hardware, gpus);
  divide_devices(resolution, gpus);
  if (cluster && cluster->assumed_node && (cluster->node || cluster->devices() > 1)) {
    resolution.assume("node", cluster->assumed_node->name, cluster->assumed_node->reason);
  }
  return cluster;
}

}  // namespace zeroplan::describe
