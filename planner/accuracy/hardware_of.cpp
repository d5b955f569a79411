#include <fmt/format.h>

#include <algorithm>

#include "planner/accuracy/mentions.hpp"
#include "planner/accuracy/modelled_run.hpp"
#include "planner/describe/machine/hardware_reader.hpp"

namespace zeroplan::accuracy {
namespace {

using describe::Cluster;
using describe::Fabric;
using describe::Figure;
using describe::Node;

constexpr std::string_view kOmniPath = "Omni-Path";

bool is_pcie(const Run& run) { return mentions(run.gpu_type, "PCIe") || mentions(run.interconnect, "PCIe"); }

// What the words of a network say of one node.
struct Network {
  double cards = 0;  // 0: not said
  double gbits_per_s = 0;
};

// Takes `end` off the end of `text`, with the blanks before it; false where it does not stand there.
bool take_end(std::string_view& text, std::string_view end) {
  while (text.ends_with(' ')) text.remove_suffix(1);
  if (!text.ends_with(end)) return false;
  text.remove_suffix(end.size());
  return true;
}

// Takes the whole number at the end of `text`, with the blanks behind it.
std::optional<double> take_number(std::string_view& text) {
  while (text.ends_with(' ')) text.remove_suffix(1);
  std::string_view digits = text;
  while (!text.empty() && text.back() >= '0' && text.back() <= '9') text.remove_suffix(1);
  digits.remove_prefix(text.size());
  if (digits.empty() || digits.size() > 9) return std::nullopt;
  return std::stod(std::string(digits));
}

// The number before the first `unit` that has one, and what stands before that number.
std::optional<std::pair<double, std::string_view>> number_before(std::string_view text,
                                                                 std::string_view unit) {
  for (std::size_t at = text.find(unit); at != std::string_view::npos; at = text.find(unit, at + 1)) {
    std::string_view before = text.substr(0, at);
    if (const auto number = take_number(before)) return std::pair(*number, before);
  }
  return std::nullopt;
}

// "8x200 Gb/s HDR IB per node", "400 Gb/s RDMA per GPU", "1600 Gbps/node RoCE", "4 Omni-Path links per node".
std::optional<Network> network_of(const Run& run) {
  constexpr double kOmniPathGbits = 100;  // a link of the 100 series
  const std::string_view words = run.interconnect;
  if (words.find(kOmniPath) != std::string_view::npos) {
    auto links = number_before(words, "Omni-Path links");
    if (!links) links = number_before(words, "links)");
    if (links) return Network{links->first, links->first * kOmniPathGbits};
  }
  for (const std::string_view unit : {"Gb/s", "Gbps", "Gbit/s"}) {
    const auto found = number_before(words, unit);
    if (!found) continue;
    auto [rate, before] = *found;
    if (mentions(words, "per GPU")) {
      const auto cards = static_cast<double>(run.gpus_per_node.value_or(8));
      return Network{cards, cards * rate};
    }
    const double cards = take_end(before, "x") ? take_number(before).value_or(0) : 0;
    return Network{cards, rate * std::max(cards, 1.0)};
  }
  return std::nullopt;
}

}  // namespace

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
  node.device = cluster.device.name;
  node.devices = cluster.devices_per_node;
  node.link_gbytes_per_s_per_device = cluster.device.nvlink_gbytes_per_s;
  const bool has_nvlink = cluster.device.nvlink_gbytes_per_s && cluster.device.nvlink_gbytes_per_s->value > 0;
  if (is_pcie(run) || !has_nvlink) {
    node.fabric = Fabric::pcie;
    node.link_gbytes_per_s_per_device = cluster.device.pcie_gbytes_per_s;
  } else {
    node.fabric = preset.node ? preset.node->fabric : Fabric::nvswitch;
  }
  return node;
}

void apply_interconnect(const Run& run, Cluster& cluster) {
  if (!cluster.node) return;
  const std::optional<Network> network = network_of(run);
  if (!network) return;
  Node& node = *cluster.node;
  const auto stated = [&](double value) {
    return Figure{value, fmt::format("{}:{}, column interconnect", run.file, run.line), run.interconnect,
                  false};
  };
  const double cards = network->cards > 0 ? network->cards : (node.nics ? node.nics->value : 1);
  node.nics = stated(cards);
  node.nic_gbits_per_s = stated(network->gbits_per_s / cards);
  node.internode_gbytes_per_s = stated(network->gbits_per_s / 8);
}

}  // namespace zeroplan::accuracy
