#include "planner/predict/links.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "planner/predict/nccl_constants.hpp"

namespace zeroplan::predict {
namespace {

using describe::AttainedCollective;
using describe::Cluster;
using describe::Collective;
using describe::Fabric;
using program::Op;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr double kGiga = 1e9;
constexpr double kMicro = 1e-6;

// A collective among n ranks on k nodes. Bytes of the whole vector x `share_sent` is what each rank sends in
// a ring.
struct Shape {
  Collective collective = Collective::all_reduce;
  double ranks = 1;
  double nodes = 1;
  double steps = 0;  // of a ring
  double share_sent = 0;
  std::optional<program::DataType> type;  // none: any
};

Shape shape_of(Op op, double ranks, double nodes) {
  const double steps = program::row_of(op).ring.passes * (ranks - 1);
  return {describe::collective_of(op), ranks, nodes, steps, program::sent_over_ring(op, 1, ranks), {}};
}

// A broadcast is a ring of as many steps as a gather whose every rank sends the whole.
Shape shape_of(Op op, const Placement& placement) {
  return shape_of(op, static_cast<double>(placement.ranks), static_cast<double>(placement.nodes));
}

double value_or(const std::optional<describe::Figure>& figure, double otherwise) {
  return figure ? figure->value : otherwise;
}

// ---- what was measured ----

bool is_of(const AttainedCollective& entry, std::optional<program::DataType> type) {
  return !entry.type || !type || *entry.type == *type;
}

// Where a type was not measured, the others stand for it.
std::optional<program::DataType> measured_type(const Cluster& cluster, program::DataType type) {
  const std::vector<AttainedCollective>& attained = cluster.device->attained_collectives;
  const bool is_there = std::any_of(attained.begin(), attained.end(),
                                    [&](const AttainedCollective& entry) { return is_of(entry, type); });
  return is_there ? std::optional(type) : std::nullopt;
}

// Attained at the largest size by this many ranks of one node; between two measured numbers of ranks in
// proportion, beyond them as the nearest, but not above the largest where only some devices are `bridged`. 0
// where nothing was measured.
double attained_rate(const std::vector<AttainedCollective>& attained, const Shape& shape,
                     Collective collective, double ranks, bool bridged) {
  const AttainedCollective* below = nullptr;
  const AttainedCollective* above = nullptr;
  for (const AttainedCollective& entry : attained) {
    if (entry.collective != collective || entry.nodes != 1 || !is_of(entry, shape.type)) continue;
    const double devices = static_cast<double>(entry.devices);
    if (devices <= ranks && (below == nullptr || entry.devices > below->devices)) below = &entry;
    if (devices >= ranks && (above == nullptr || entry.devices < above->devices)) above = &entry;
  }
  if (above == nullptr && (below == nullptr || bridged)) return 0;
  if (below == nullptr) below = above;
  if (above == nullptr) above = below;
  const double low = below->busbw_gbytes_per_s.back();
  const double high = above->busbw_gbytes_per_s.back();
  if (above->devices == below->devices) return low;
  const double part =
      (ranks - static_cast<double>(below->devices)) / static_cast<double>(above->devices - below->devices);
  return low + part * (high - low);
}

// The table by size to start from: of this collective if there is one, or of another; of this type, or of
// any. Where types were measured apart so were numbers of ranks, and the same number comes first.
const AttainedCollective* find_table(const std::vector<AttainedCollective>& attained, const Shape& shape,
                                     bool several_nodes) {
  const AttainedCollective* found = nullptr;
  int best = -1;
  for (const AttainedCollective& entry : attained) {
    if (entry.seconds.size() < 2 || (entry.nodes > 1) != several_nodes) continue;
    const int alike = (is_of(entry, shape.type) ? 4 : 0) + (entry.collective == shape.collective ? 2 : 0) +
                      (entry.type && static_cast<double>(entry.devices) == shape.ranks ? 1 : 0);
    if (alike <= best) continue;
    best = alike;
    found = &entry;
  }
  return found;
}

// Time and size are interpolated in their logarithms; before the table the time stays, beyond it the rate.
double table_seconds(const AttainedCollective& table, double bytes) {
  const double position = std::log2(std::max(bytes, table.first_bytes) / table.first_bytes);
  const std::size_t last = table.seconds.size() - 1;
  if (position >= static_cast<double>(last)) {
    return table.seconds[last] * bytes / std::ldexp(table.first_bytes, static_cast<int>(last));
  }
  const auto index = static_cast<std::size_t>(position);
  const double part = position - static_cast<double>(index);
  return table.seconds[index] * std::pow(table.seconds[index + 1] / table.seconds[index], part);
}

// A table of one shape applied to another: what the table takes beyond its own rate is in proportion to the
// steps, less what an empty vector takes; the rest goes by the bytes sent at `bytes_per_s`. The proportion is
// bounded so that time never falls with size.
double scaled_seconds(const AttainedCollective& table, const Shape& shape, double bytes, double bytes_per_s) {
  const Shape measured = shape_of(describe::op_of(table.collective), static_cast<double>(table.devices),
                                  static_cast<double>(table.nodes));
  const double table_per_byte = measured.share_sent / (table.busbw_gbytes_per_s.back() * kGiga);
  const double per_byte = shape.share_sent / bytes_per_s;
  const double part = std::min(shape.steps / measured.steps, per_byte / table_per_byte);
  return (1 - part) * table.seconds.front() + part * table_seconds(table, bytes) +
         (per_byte - part * table_per_byte) * bytes;
}

// ---- inside a node ----

// Links of a V100 that a ring of this many neighbours uses in the hybrid cube mesh of DGX-1: each has two
// links or one to the three others of its quad, and two to the other quad.
double cube_mesh_links(double ranks) { return ranks <= 2 ? 1 : ranks <= 4 ? 4 : 6; }

bool over_pcie(const Cluster& cluster) {
  if (cluster.node && cluster.node->fabric == Fabric::pcie) return true;
  if (cluster.node && cluster.node->link_gbytes_per_s_per_device) return false;
  return value_or(cluster.device->nvlink_gbytes_per_s, 0) == 0;
}

// The data sheet's rate of a device's links, as the device has it and as it is in this node.
std::optional<double> link_of_device(const Cluster& cluster) {
  const describe::Device& device = cluster.device;
  const auto& figure = over_pcie(cluster) ? device.pcie_gbytes_per_s : device.nvlink_gbytes_per_s;
  return figure ? std::optional(figure->value) : std::nullopt;
}

std::optional<double> link_in_node(const Cluster& cluster) {
  if (cluster.node && cluster.node->link_gbytes_per_s_per_device)
    return cluster.node->link_gbytes_per_s_per_device->value;
  return link_of_device(cluster);
}

// What is known of a device's links, measured or counted by NCCL, is of the device's own; in a node whose
// links are slower or faster it is in proportion.
double link_ratio(const Cluster& cluster) {
  const double own = link_of_device(cluster).value_or(0);
  return own > 0 ? link_in_node(cluster).value_or(own) / own : 1;
}

// By the figures of the links, GB/s; not a number where none is known.
double link_rate(const Cluster& cluster, double ranks) {
  const describe::Device& device = cluster.device;
  const double link = link_in_node(cluster).value_or(kUnknown);
  if (over_pcie(cluster)) return link * nccl::kPcieFraction;
  const bool cube_mesh = cluster.node && cluster.node->fabric == Fabric::cube_mesh;
  if (device.nvlink_links && device.nccl_link_gbytes_per_s) {
    const double links = device.nvlink_links->value;
    return link_ratio(cluster) * (cube_mesh ? std::min(links, cube_mesh_links(ranks)) : links) *
           device.nccl_link_gbytes_per_s->value;
  }
  return nccl::kLinkFraction * link;
}

// Bus bandwidth cannot be above the links it goes over, whatever an entry says; each rank sends the whole
// vector once where a switch reduces it. Pairs that are bridged beside PCIe have links of their own.
double link_limit(const Cluster& cluster, Collective collective, double ranks) {
  const double bridge = over_pcie(cluster) ? value_or(cluster.device->nvlink_gbytes_per_s, kUnknown) : 0;
  const double link = link_in_node(cluster).value_or(kUnknown);
  if (std::isnan(bridge) || std::isnan(link)) return std::numeric_limits<double>::infinity();
  const double in_switch = collective == Collective::all_reduce ? std::max(1.0, 2 * (ranks - 1) / ranks) : 1;
  return in_switch * std::max(link, bridge);
}

// In-switch reduction (NVLS) makes an all-reduce faster than the links; gathers and scatters stay on the
// ring.
double node_rate(const Cluster& cluster, const Shape& shape, double ranks) {
  const struct {
    const std::vector<AttainedCollective>* attained;
    double ratio;  // of what is asked for to what was measured
  } lists[] = {{cluster.node ? &cluster.node->attained_collectives : nullptr, 1},
               {&cluster.device->attained_collectives, link_ratio(cluster)}};
  const bool bridged = over_pcie(cluster) && !(cluster.node && cluster.node->fabric == Fabric::shared_memory);
  for (const auto& [attained, ratio] : lists) {
    if (attained == nullptr) continue;
    if (const double rate = attained_rate(*attained, shape, shape.collective, ranks, bridged); rate > 0)
      return std::min(ratio * rate, link_limit(cluster, shape.collective, ranks));
    const double all_reduce = ratio * attained_rate(*attained, shape, Collective::all_reduce, ranks, bridged);
    if (all_reduce > 0) return bridged ? all_reduce : std::fmin(all_reduce, link_rate(cluster, ranks));
  }
  const double rate = link_rate(cluster, ranks);
  return std::isnan(rate) ? rate : std::min(rate, link_limit(cluster, shape.collective, ranks));
}

// NCCL's form for a ring with its best protocol, and what measurements add.
double ring_seconds(const Cluster& cluster, const Shape& shape, double bytes, double bytes_per_s) {
  const auto& hop = over_pcie(cluster) ? nccl::kRingPcieHopUs : nccl::kRingNvlinkHopUs;
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t protocol = 0; protocol < hop.size(); ++protocol) {
    const double latency = kMicro * (nccl::kRingBaseUs[protocol] + shape.steps * hop[protocol]);
    best = std::min(best, latency + bytes * shape.share_sent / (bytes_per_s * nccl::kProtocolRate[protocol]));
  }
  const double measured_steps = 2 * (nccl::kMissingRanks - 1);
  return best + kMicro * nccl::kMissingUsPerRootByte * std::sqrt(bytes) * shape.steps / measured_steps;
}

double node_seconds(const Cluster& cluster, const Shape& shape, double bytes) {
  const double bytes_per_s = node_rate(cluster, shape, shape.ranks) * kGiga;
  if (!(bytes_per_s > 0)) return kUnknown;
  const AttainedCollective* table =
      cluster.node ? find_table(cluster.node->attained_collectives, shape, false) : nullptr;
  if (table == nullptr) table = find_table(cluster.device->attained_collectives, shape, false);
  if (table != nullptr) return scaled_seconds(*table, shape, bytes, bytes_per_s);
  return ring_seconds(cluster, shape, bytes, bytes_per_s);
}

// ---- over nodes ----

// Bus bandwidth over the interfaces of a node, GB/s: of one group that has the node to itself, and of all
// groups of a node together.
struct WireRates {
  double group = 0, node = 0;
  bool measured = false;  // of this collective among so many nodes
};

// Of the nearest number of nodes that was measured, with this collective if there is one. All groups together
// reach the best that was measured of any: one ring may be held up where several are not.
WireRates wire_rates(const describe::Node& node, const Shape& shape) {
  const AttainedCollective* nearest = nullptr;
  const auto is_same = [&](const AttainedCollective& entry) { return entry.collective == shape.collective; };
  const auto distance = [&](const AttainedCollective& entry) {
    return std::abs(static_cast<double>(entry.nodes) - shape.nodes);
  };
  for (const AttainedCollective& entry : node.attained_collectives) {
    if (entry.nodes <= 1) continue;
    const bool is_better = nearest == nullptr || (is_same(entry) && !is_same(*nearest)) ||
                           (is_same(entry) == is_same(*nearest) && distance(entry) < distance(*nearest));
    if (is_better) nearest = &entry;
  }
  if (nearest == nullptr) {
    const double wire = value_or(node.internode_gbytes_per_s, kUnknown) * nccl::kWireFraction;
    return {.group = wire, .node = wire, .measured = false};
  }
  // Not above the wire, which a tree of two nodes crosses once where a ring crosses it twice.
  const double wire = value_or(node.internode_gbytes_per_s, std::numeric_limits<double>::infinity());
  const auto rate_of = [&](const AttainedCollective& entry) {
    const bool tree = entry.collective == Collective::all_reduce && entry.nodes == 2;
    return std::min(entry.busbw_gbytes_per_s.back(), (tree ? 2 : 1) * wire);
  };
  WireRates rates{
      .group = rate_of(*nearest), .node = 0, .measured = is_same(*nearest) && distance(*nearest) == 0};
  for (const AttainedCollective& entry : node.attained_collectives) {
    if (entry.nodes > 1) rates.node = std::max(rates.node, rate_of(entry));
  }
  return rates;
}

// A ring crosses each node once, so a node's interfaces carry the bus bandwidth of all its groups together; a
// rank reaches the interfaces nearest to it.
double wire_share(const describe::Node& node, const Placement& placement) {
  const double nics = std::max(1.0, value_or(node.nics, 1));
  const double nics_per_device = std::max(1.0, nics / static_cast<double>(node.devices));
  const double reached =
      std::min(1.0, static_cast<double>(placement.ranks_per_node) * nics_per_device / nics);
  return std::min(reached, 1 / static_cast<double>(placement.groups_sharing));
}

bool is_before_ampere(const Cluster& cluster) {
  return value_or(cluster.device->compute_capability, nccl::kAmpere) < nccl::kAmpere;
}

double internode_ring_seconds(const Cluster& cluster, const Shape& shape, double bytes, double bytes_per_s) {
  const bool all_reduce = shape.collective == Collective::all_reduce;
  const double crossings = (all_reduce ? 2 : 1) * (shape.nodes - 1);
  const double hop = over_pcie(cluster) ? nccl::kRingPcieHopUs[2] : nccl::kRingNvlinkHopUs[2];
  double latency = nccl::kSimpleBaseUs + (shape.steps - crossings) * hop + crossings * nccl::kNetworkHopUs;
  if (all_reduce) {
    latency *= is_before_ampere(cluster) ? nccl::kInternodeAllReduceBeforeAmpere : nccl::kInternodeAllReduce;
  }
  return kMicro * latency + bytes * shape.share_sent / bytes_per_s;
}

double tree_correction(double bytes) {
  constexpr double kLast = static_cast<double>(nccl::kTreeCorrection.size() - 1);
  const double position =
      std::clamp(std::log2(std::max(bytes, 1.0) / nccl::kTreeCorrectionFirstBytes), 0.0, kLast);
  const auto index = std::min(static_cast<std::size_t>(position), nccl::kTreeCorrection.size() - 2);
  const double part = position - static_cast<double>(index);
  return nccl::kTreeCorrection[index] +
         part * (nccl::kTreeCorrection[index + 1] - nccl::kTreeCorrection[index]);
}

// On two nodes a tree puts each byte on the wire once, half of what goes inside the nodes, so it may exceed
// the wire (https://github.com/NVIDIA/nccl/issues/946) where that is not a measurement of such a pair. Nodes
// of V100 were seen to (41.6 over 25 GB/s, nccl-tests issue 251); large messages of two A100 nodes stay on
// the ring (86 to 91 over 100 GB/s, nccl-tests issue 175; 192 over 200, nccl issue 812).
double tree_seconds(const Cluster& cluster, const Shape& shape, double bytes, double wire_gbytes_per_s,
                    bool measured) {
  const double ranks_per_node = shape.ranks / shape.nodes;
  const double fraction = nccl::kTreeRate * tree_correction(bytes);
  const bool exceeds = shape.nodes <= 2 && is_before_ampere(cluster) && !measured;
  double rate = (exceeds ? 2 : fraction) * wire_gbytes_per_s;
  if (ranks_per_node > 1) rate = std::fmin(rate, fraction * link_rate(cluster, ranks_per_node));
  const double latency = nccl::kSimpleBaseUs + 2 * ((ranks_per_node - 1) * nccl::kTreeHopUs +
                                                    std::log2(shape.nodes) * nccl::kNetworkHopUs);
  return kMicro * latency + 2 * bytes / (rate * kGiga);
}

double internode_seconds(const Cluster& cluster, const Placement& placement, const Shape& shape,
                         double bytes) {
  if (!cluster.node) return kUnknown;
  const double ranks_per_node = static_cast<double>(placement.ranks_per_node);
  const WireRates rates = wire_rates(*cluster.node, shape);
  const double wire = std::fmin(rates.group, rates.node * wire_share(*cluster.node, placement));
  if (!(wire > 0)) return kUnknown;
  const double inside = placement.ranks_per_node > 1 ? node_rate(cluster, shape, ranks_per_node) : wire;
  const double bytes_per_s = std::fmin(wire, inside) * kGiga;
  double seconds = internode_ring_seconds(cluster, shape, bytes, bytes_per_s);
  if (shape.collective == Collective::all_reduce) {
    seconds = std::min(seconds, tree_seconds(cluster, shape, bytes, wire, rates.measured));
  }
  if (const auto* table = find_table(cluster.node->attained_collectives, shape, true)) {
    seconds = std::max(seconds, scaled_seconds(*table, shape, bytes, bytes_per_s));
  }
  return seconds;
}

}  // namespace

Placement place_group(const program::Group& group, std::int64_t run_ranks, const Cluster& cluster) {
  const std::int64_t per_node = cluster.devices_per_node;
  const std::int64_t places = std::max<std::int64_t>(1, per_node / group.stride);  // of one group on a node
  const std::int64_t block =
      group.size * group.stride;  // of ranks; one such group begins in it at each of the first
  Placement placement;
  placement.ranks = group.size;
  // Blocks that fit no whole number of times into a node, or the other way round, begin and end inside nodes.
  if (block >= run_ranks || per_node % block == 0 || block % per_node == 0) {
    placement.nodes = div_ceil(group.size, places);
    placement.ranks_per_node = std::min(group.size, places);
  } else {
    placement.nodes = div_ceil(group.size - 1, places) + 1;
    placement.ranks_per_node = div_ceil(group.size, placement.nodes);
  }
  placement.groups_sharing =
      group.stride > 1 ? std::min(group.stride, per_node)
                       : std::max<std::int64_t>(1, std::min(per_node, run_ranks) / placement.ranks_per_node);
  return placement;
}

double collective_seconds(const Cluster& cluster, const Placement& placement, Op collective, double bytes,
                          program::DataType type) {
  if (placement.ranks <= 1) return 0;
  Shape shape = shape_of(collective, placement);
  shape.type = measured_type(cluster, type);
  return placement.nodes > 1 ? internode_seconds(cluster, placement, shape, bytes)
                             : node_seconds(cluster, shape, bytes);
}

}  // namespace zeroplan::predict
