#include <fmt/format.h>

#include "planner/accuracy/modelled_run.hpp"
#include "planner/describe/machine/hardware_reader.hpp"

namespace zeroplan::accuracy {

using describe::Cluster;
using describe::Fabric;
using describe::Figure;
using describe::Node;

std::string hardware_of(const Run& run) {
  if (!run.hardware.empty()) return run.hardware;
  if (run.gpu_type.empty() && run.gpu_family.empty()) throw NotModelled{"GPU not stated"};
  for (const std::string& name : {run.gpu_type, gpu_label(run), run.gpu_family}) {
    const describe::EmbeddedFile* preset = describe::find_preset(name, describe::HardwareName::Kind::device);
    if (preset != nullptr) return std::string(preset->name);
  }
  throw NotModelled{"no hardware preset for " + gpu_label(run)};
}

Node plain_node(const Run& run, const Cluster& cluster, const Cluster& preset) {
  Node node;
  node.name = gpu_label(run);
  node.title = run.gpu_type;
  node.device = cluster.device->name;
  node.devices = cluster.devices_per_node;
  node.link_gbytes_per_s_per_device = cluster.device->nvlink_gbytes_per_s;
  const bool has_nvlink =
      cluster.device->nvlink_gbytes_per_s && cluster.device->nvlink_gbytes_per_s->value > 0;
  if (has_nvlink && !run.pcie.value_or(false)) {
    node.fabric = preset.node ? preset.node->fabric : Fabric::nvswitch;
  } else {
    node.fabric = Fabric::pcie;
    node.link_gbytes_per_s_per_device = cluster.device->pcie_gbytes_per_s;
  }
  return node;
}

void apply_network(const Run& run, Cluster& cluster) {
  if (!cluster.node || !run.node_gbits_per_s) return;
  Node node = *cluster.node;
  const auto stated = [&](double value) {
    return Figure{value, fmt::format("{}:{}", run.file, run.line), run.interconnect, false};
  };
  const double cards = run.nics ? static_cast<double>(*run.nics) : node.nics ? node.nics->value : 1;
  node.nics = stated(cards);
  node.nic_gbits_per_s = stated(*run.node_gbits_per_s / cards);
  node.internode_gbytes_per_s = stated(*run.node_gbits_per_s / 8);
  cluster.node = std::make_shared<const Node>(std::move(node));
}

}  // namespace zeroplan::accuracy
