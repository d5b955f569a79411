#include "planner/describe/machine/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "planner/describe/machine/hardware_reader.hpp"
#include "planner/describe/text/named_description.hpp"

namespace zeroplan::describe {
namespace {

using Count = std::optional<std::int64_t>;

constexpr std::int64_t kMostDevices = 1'000'000'000;
// As many as the slots of the common servers for PCIe cards, and as one board of OAM or SXM modules.
constexpr std::int64_t kDevicesOfUnknownNode = 8;

[[noreturn]] void refuse(std::string option, std::string message) {
  throw ConfigurationError(Problem{std::move(option), 0, "", std::move(message)});
}

void check_count(const char* option, Count count) {
  if (count && (*count < 1 || *count > kMostDevices)) {
    refuse(option, fmt::format("found {}, expected a whole number from 1 to {}", *count, kMostDevices));
  }
}

HardwareDescription read_argument(const std::string& argument) {
  if (const EmbeddedFile* file = find_preset(argument)) {
    return remembered<HardwareDescription>(*file, read_hardware_yaml);
  }
  const std::string_view name = argument;
  std::error_code ignored;
  const bool means_file = name.find('/') != std::string_view::npos || name.ends_with(".yaml") ||
                          name.ends_with(".yml") || std::filesystem::is_regular_file(argument, ignored);
  if (means_file) return read_hardware_yaml(parse_yaml(read_text_file(argument), argument));
  using enum HardwareName::Kind;
  refuse("--hw", unknown_preset(argument, {device, node, cluster},
                                "a device, node or cluster preset, or a YAML file"));
}

// A device alone is put into its usual nodes, or into nodes of up to kDevicesOfUnknownNode where no shipped
// node has it: the devices are spread evenly over as many nodes as asked for, else over the fewest. Ranks on
// processors stay in one machine.
void arrange_devices(Cluster& cluster, Count nodes, Count gpus) {
  const bool is_host = cluster.device->capacity.from_host_memory;
  const std::string& usual = cluster.device->usual_node;
  if (!is_host && !usual.empty()) cluster.node = find_node(usual);
  const std::int64_t most = cluster.node ? cluster.node->devices : kDevicesOfUnknownNode;
  const std::int64_t total = gpus.value_or(nodes.value_or(1));
  std::int64_t per_node = is_host ? total : std::min(total, most);
  while (total % per_node != 0) --per_node;
  cluster.nodes = nodes.value_or(total / per_node);
  if (total % cluster.nodes != 0) {
    refuse("--gpus", fmt::format("found {}, expected a multiple of the {} nodes ({} / {} leaves {})", total,
                                 cluster.nodes, total, cluster.nodes, total % cluster.nodes));
  }
  cluster.devices_per_node = total / cluster.nodes;
  if (is_host) return;
  if (!cluster.node) {
    cluster.assumed_node = {
        fmt::format("{} x {}", cluster.nodes, cluster.devices_per_node),
        fmt::format("no shipped node has this device: at most {} in one, and no network between nodes",
                    most)};
    return;
  }
  if (cluster.devices_per_node > most) {
    refuse("--gpus", fmt::format("found {}, expected at most {} nodes x {} devices of {} = {}", total,
                                 cluster.nodes, most, usual, cluster.nodes * most));
  }
  cluster.assumed_node = {usual, cluster.device->usual_node_reason};
}

void arrange_nodes(Cluster& cluster, std::int64_t default_nodes, Count nodes, Count gpus) {
  const std::string& name = cluster.node->name;
  const std::int64_t per_node = cluster.node->devices;
  cluster.nodes = nodes.value_or(default_nodes);
  cluster.devices_per_node = per_node;
  if (!gpus) return;
  if (*gpus < per_node && nodes.value_or(1) == 1) {
    cluster.nodes = 1;
    cluster.devices_per_node = *gpus;
  } else if (!nodes) {
    if (*gpus % per_node != 0) {
      refuse("--gpus",
             fmt::format("found {}, expected at most {} or a multiple of it: a node of {} has {} devices",
                         *gpus, per_node, name, per_node));
    }
    cluster.nodes = *gpus / per_node;
  } else if (*gpus != *nodes * per_node) {
    refuse("--gpus", fmt::format("found {}, expected {} nodes x {} devices of {} = {}", *gpus, *nodes,
                                 per_node, name, *nodes * per_node));
  }
}

void check_cluster_size(const Cluster& cluster, std::int64_t most_nodes, Count nodes) {
  if (cluster.nodes <= most_nodes) return;
  if (nodes) {
    refuse("--nodes",
           fmt::format("found {}, expected at most the {} nodes of {}", *nodes, most_nodes, cluster.name));
  }
  refuse("--gpus",
         fmt::format("found {}, expected at most {} nodes x {} devices of {} = {}", cluster.devices(),
                     most_nodes, cluster.node->devices, cluster.name, most_nodes * cluster.node->devices));
}

void take_host_memory(Cluster& cluster) {
  const Bytes memory = host_memory_bytes();
  const Bytes per_rank = memory / cluster.devices_per_node;
  const Figure total{
      .value = static_cast<double>(memory), .source = "/proc/meminfo", .note = {}, .assumed = false};
  Figure share = total;
  share.value = static_cast<double>(per_rank);
  share.note = fmt::format("{} bytes shared by {} rank{}", memory, cluster.devices_per_node,
                           cluster.devices_per_node == 1 ? "" : "s");
  cluster.device.edit().capacity.host_bytes = std::move(share);
  if (cluster.node) return;
  Node machine;
  machine.name = cluster.device->name;
  machine.title = "this machine";
  machine.device = cluster.device->name;
  machine.devices = cluster.devices_per_node;
  machine.fabric = Fabric::shared_memory;
  machine.host_memory_bytes = total;
  cluster.node = std::make_shared<const Node>(std::move(machine));
}

}  // namespace

Cluster resolve_cluster(const std::string& argument, Count nodes, Count gpus) {
  check_count("--nodes", nodes);
  check_count("--gpus", gpus);
  HardwareDescription description = read_argument(argument);
  Cluster cluster;
  cluster.name = std::move(description.name);
  cluster.device = std::move(description.device);
  cluster.node = std::move(description.node);
  cluster.description_source = std::move(description.source);
  if (!cluster.node) {
    arrange_devices(cluster, nodes, gpus);
  } else {
    arrange_nodes(cluster, description.nodes.value_or(1), nodes, gpus);
  }
  if (description.nodes) check_cluster_size(cluster, *description.nodes, nodes);
  if (cluster.device->capacity.from_host_memory) take_host_memory(cluster);
  return cluster;
}

}  // namespace zeroplan::describe
