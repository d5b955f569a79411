#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <string>

#include "planner/describe/machine/cluster.hpp"
#include "planner/predict/links.hpp"

// What a user's file says about the links of a machine decides how long its collectives take, whatever was
// measured on the devices elsewhere.
namespace describe = zeroplan::describe;
namespace predict = zeroplan::predict;
namespace program = zeroplan::program;
using describe::Cluster;
using program::Op;

namespace {

constexpr double kBytes = 256 * 1048576.0;

std::string node_yaml(std::string_view device, std::string_view fabric, double link, std::string_view more) {
  return fmt::format(
      "kind: node\nname: mine\nschema: zeroplan.hardware/1\ndevice: {}\ndevices: 8\nfabric: {}\n"
      "link_gbytes_per_s_per_device: {}\n{}",
      device, fabric, link, more);
}

Cluster cluster_of(const std::string& yaml, std::int64_t nodes) {
  describe::HardwareDescription read = describe::read_hardware_yaml(describe::parse_yaml(yaml, "mine.yaml"));
  Cluster cluster;
  cluster.name = read.name;
  cluster.device = read.device;
  cluster.node = read.node;
  cluster.nodes = nodes;
  cluster.devices_per_node = read.node ? read.node->devices : 8;
  return cluster;
}

double seconds(const Cluster& cluster, Op op, double bytes = kBytes) {
  const predict::Placement all{cluster.devices(), cluster.devices_per_node, cluster.nodes, 1};
  return predict::collective_seconds(cluster, all, op, bytes);
}

constexpr Op kCollectives[] = {Op::all_reduce, Op::all_gather, Op::reduce_scatter, Op::broadcast};

struct Link {
  const char* device;
  const char* fabric;
  double rate;  // of the device's data sheet
};

constexpr Link kLinks[] = {{"a100-80gb", "nvswitch", 300},     {"h100", "nvswitch", 450},
                           {"b200", "nvswitch", 900},          {"v100-32gb", "cube_mesh", 150},
                           {"mi300x", "infinity_fabric", 448}, {"rtx-4090", "pcie", 31},
                           {"a100-pcie-80gb", "pcie", 31}};

}  // namespace

TEST_CASE("links of half the rate inside a node take a large vector about twice the time") {
  for (const Link& link : kLinks) {
    CAPTURE(link.device);
    const Cluster whole = cluster_of(node_yaml(link.device, link.fabric, link.rate, ""), 1);
    const Cluster half = cluster_of(node_yaml(link.device, link.fabric, link.rate / 2, ""), 1);
    for (const Op op : kCollectives) {
      const double ratio = seconds(half, op) / seconds(whole, op);
      CHECK(ratio > 1.6);
      CHECK(ratio <= 2.0001);
      // Latency does not go by the rate.
      CHECK(seconds(half, op, 0) == doctest::Approx(seconds(whole, op, 0)));
    }
  }
}

TEST_CASE("a node whose links are the device's own changes nothing") {
  for (const Link& link : kLinks) {
    CAPTURE(link.device);
    Cluster silent = cluster_of(node_yaml(link.device, link.fabric, link.rate, ""), 1);
    const double said = seconds(silent, Op::all_reduce);
    zeroplan::edit(silent.node).link_gbytes_per_s_per_device.reset();
    CHECK(said == seconds(silent, Op::all_reduce));
  }
}

TEST_CASE("a network of half the rate takes a large vector about twice the time") {
  for (const Link& link : kLinks) {
    CAPTURE(link.device);
    const Cluster whole =
        cluster_of(node_yaml(link.device, link.fabric, link.rate, "nics: 1\nnic_gbits_per_s: 100\n"), 4);
    const Cluster half =
        cluster_of(node_yaml(link.device, link.fabric, link.rate, "nics: 1\nnic_gbits_per_s: 50\n"), 4);
    // The whole node's figure is what its interfaces come to, where the file does not say less.
    REQUIRE(whole.node->internode_gbytes_per_s.has_value());
    CHECK(whole.node->internode_gbytes_per_s->value == 12.5);
    for (const Op op : kCollectives) {
      const double ratio = seconds(half, op) / seconds(whole, op);
      CHECK(ratio > 1.6);
      CHECK(ratio <= 2.0001);
    }
  }
}

// A file that was copied with what was measured on another machine: no collective goes faster than the links
// that the file describes.
TEST_CASE("what was attained does not go above the links of the file") {
  const char* attained =
      "collectives_attained:\n"
      "  - {op: all_gather, devices: 8, first_gib: 1, busbw_gbytes_per_s: 230, source: elsewhere}\n"
      "  - {op: all_reduce, devices: 8, first_gib: 1, busbw_gbytes_per_s: 460, source: elsewhere}\n"
      "  - {op: all_reduce, devices: 32, nodes: 4, first_gib: 1, busbw_gbytes_per_s: 180, source: "
      "elsewhere}\n";
  const std::string network = "nics: 8\nnic_gbits_per_s: 100\n";
  const std::string yaml = node_yaml("a100-80gb", "nvswitch", 100, network + attained);
  const double sent = kBytes * 7 / 8;
  CHECK(seconds(cluster_of(yaml, 1), Op::all_gather) >= sent / 100e9);
  CHECK(seconds(cluster_of(yaml, 1), Op::all_reduce) >= kBytes / 100e9);
  CHECK(seconds(cluster_of(yaml, 4), Op::all_reduce) >= 2 * kBytes * 31 / 32 / 100e9);
}

TEST_CASE("the links of a node count where its device has none in its description") {
  const std::string device = "{name: own, capacity: {brochure_gb: 80}}";
  const double fast = seconds(cluster_of(node_yaml(device, "nvswitch", 300, ""), 1), Op::all_reduce);
  const double slow = seconds(cluster_of(node_yaml(device, "nvswitch", 150, ""), 1), Op::all_reduce);
  const double pcie = seconds(cluster_of(node_yaml(device, "pcie", 31, ""), 1), Op::all_reduce);
  CHECK(slow > 1.6 * fast);
  CHECK(pcie > slow);
}
