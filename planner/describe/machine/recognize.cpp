#include "planner/describe/machine/recognize.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string_view>

#include "planner/describe/machine/hardware_reader.hpp"

namespace zeroplan::describe {
namespace {

constexpr double kSameCapability = 1e-3;
constexpr double kSameMemory = 0.03;      // of a GPU, relative
constexpr double kSameHostMemory = 0.10;  // firmware and the kernel take some of it
// Slower interfaces are for logging in, not for training.
constexpr double kSlowestTrainingGbits = 25;

bool near(double a, double b, double tolerance) { return std::fabs(a - b) <= tolerance * b; }

// "NVIDIA A100 80GB PCIe" is a100-80gb-pcie.
std::string preset_spelling(std::string_view name) {
  constexpr std::array<std::string_view, 3> kMakers{"NVIDIA ", "Tesla ", "GeForce "};
  for (const std::string_view maker : kMakers) {
    if (name.starts_with(maker)) name.remove_prefix(maker.size());
  }
  std::string spelling(name);
  std::replace(spelling.begin(), spelling.end(), ' ', '-');
  return spelling;
}

// Whether NVLinks lead from the first GPU to every other, over others or not.
bool all_reached(const FoundMachine& machine) {
  std::vector<bool> reached(machine.gpus.size(), false);
  reached.front() = true;
  for (std::size_t round = 1; round < machine.gpus.size(); ++round) {
    for (const FoundPath& path : machine.paths) {
      if (path.nvlink != std::optional(true)) continue;
      const auto first = static_cast<std::size_t>(path.first);
      const auto second = static_cast<std::size_t>(path.second);
      const bool either = reached[first] || reached[second];
      reached[first] = either;
      reached[second] = either;
    }
  }
  return std::find(reached.begin(), reached.end(), false) == reached.end();
}

bool has_network_and_memory_of(const Node& node, const FoundMachine& machine) {
  const FoundNetwork network = network_of(machine);
  if (!node.nics || !node.nic_gbits_per_s || !node.host_memory_bytes || !machine.host.memory_bytes)
    return false;
  return static_cast<double>(network.nics) == node.nics->value &&
         network.gbits_per_s == node.nic_gbits_per_s->value &&
         near(static_cast<double>(*machine.host.memory_bytes), node.host_memory_bytes->value,
              kSameHostMemory);
}

}  // namespace

std::optional<std::string> device_preset_of(const FoundGpu& gpu) {
  if (!gpu.name || gpu.mig.value_or(false)) return std::nullopt;
  const EmbeddedFile* preset = find_preset(preset_spelling(*gpu.name), HardwareName::Kind::device);
  if (preset == nullptr) return std::nullopt;
  const std::optional<Figure> nvml = find_device(std::string(preset->name))->capacity.nvml_bytes;
  const bool same =
      !nvml || !gpu.total_bytes || near(static_cast<double>(*gpu.total_bytes), nvml->value, kSameMemory);
  return same ? std::optional(std::string(preset->name)) : std::nullopt;
}

std::optional<std::string> nearest_device_preset(const FoundGpu& gpu) {
  if (!gpu.compute_capability || !gpu.total_bytes) return std::nullopt;
  std::optional<std::string> nearest;
  double least = 0;
  for (const HardwareName& preset : preset_hardware_names()) {
    if (preset.kind != HardwareName::Kind::device) continue;
    const Described<Device> device = find_device(preset.name);
    if (!device->compute_capability || !device->capacity.nvml_bytes) continue;
    if (!near(device->compute_capability->value, *gpu.compute_capability, kSameCapability)) continue;
    const double ratio = static_cast<double>(*gpu.total_bytes) / device->capacity.nvml_bytes->value;
    const double distance = std::fabs(std::log(ratio));
    if (nearest && distance >= least) continue;
    nearest = preset.name;
    least = distance;
  }
  return nearest;
}

std::optional<std::string> device_preset_of(const FoundMachine& machine) {
  std::optional<std::string> all;
  for (const FoundGpu& gpu : machine.gpus) {
    const std::optional<std::string> one = device_preset_of(gpu);
    if (!one || (all && all != one)) return std::nullopt;
    all = one;
  }
  return all;
}

FoundNetwork network_of(const FoundMachine& machine) {
  FoundNetwork network;
  for (const FoundNic& nic : machine.nics) {
    if (!nic.active.value_or(true) || nic.gbits_per_s.value_or(0) < kSlowestTrainingGbits) continue;
    if (network.nics > 0 && network.gbits_per_s != nic.gbits_per_s) return {};
    ++network.nics;
    network.gbits_per_s = nic.gbits_per_s;
  }
  return network;
}

std::optional<Fabric> fabric_of(const FoundMachine& machine) {
  const bool known = std::all_of(machine.paths.begin(), machine.paths.end(),
                                 [](const FoundPath& path) { return path.nvlink.has_value(); });
  if (!known || machine.gpus.size() < 2) return std::nullopt;
  if (!all_reached(machine)) return Fabric::pcie;
  return machine.gpus.front().nvlinks_end_in_a_switch.value_or(false) ? Fabric::nvswitch : Fabric::cube_mesh;
}

std::vector<std::string> node_presets_of(const FoundMachine& machine) {
  const std::optional<std::string> device = device_preset_of(machine);
  const std::optional<Fabric> fabric = fabric_of(machine);
  if (!device || !fabric) return {};
  std::vector<std::string> nodes;
  std::vector<std::string> alike;
  for (const HardwareName& preset : preset_hardware_names()) {
    if (preset.kind != HardwareName::Kind::node) continue;
    const std::shared_ptr<const Node> node = find_node(preset.name);
    if (node->device != *device || node->fabric != *fabric ||
        node->devices != static_cast<std::int64_t>(machine.gpus.size())) {
      continue;
    }
    nodes.push_back(preset.name);
    if (has_network_and_memory_of(*node, machine)) alike.push_back(preset.name);
  }
  return alike.empty() ? nodes : alike;
}

}  // namespace zeroplan::describe
