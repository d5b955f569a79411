#include "planner/predict/links.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace describe = zeroplan::describe;
namespace predict = zeroplan::predict;
namespace program = zeroplan::program;
using describe::Cluster;
using predict::collective_seconds;
using predict::place_group;
using predict::Placement;
using program::GroupKind;
using program::Op;

namespace {

constexpr double kMiB = 1048576;
constexpr double kGiB = 1024 * kMiB;

const YAML::Node& facts() {
  static const YAML::Node root = YAML::LoadFile(ZEROPLAN_TEST_DATA "/collectives.yaml");
  return root;
}

double bytes_of(const std::string& size) {
  const double number = std::stod(size);
  if (size.ends_with("KiB")) return number * 1024;
  return size.ends_with("MiB") ? number * kMiB : number * kGiB;
}

double factor(Op op, double n) { return (op == Op::all_reduce ? 2 : 1) * (n - 1) / n; }

// One group of every device of the cluster, as in nccl-tests.
Placement whole(const Cluster& cluster) {
  return {cluster.devices(), cluster.devices_per_node, cluster.nodes, 1};
}

double busbw(const Cluster& cluster, const Placement& placement, Op op, double bytes) {
  return bytes * factor(op, static_cast<double>(placement.ranks)) /
         collective_seconds(cluster, placement, op, bytes) / 1e9;
}

double relative_error(double predicted, double measured) { return std::abs(predicted / measured - 1); }

// Holds every size from 16 MiB on to `limit`, and their median to `median`.
void check_table(const Cluster& cluster, const YAML::Node& table, const std::string& first, double limit,
                 double median) {
  double bytes = bytes_of(first);
  std::vector<double> errors;
  for (const auto& rate : table["busbw"]) {
    if (bytes >= 16 * kMiB) {
      CAPTURE(bytes / kMiB);
      const double predicted = busbw(cluster, whole(cluster), Op::all_reduce, bytes);
      errors.push_back(relative_error(rate.as<double>() / predicted, 1));  // of the time
      CHECK(errors.back() <= limit);
    }
    bytes *= 2;
  }
  std::sort(errors.begin(), errors.end());
  CHECK(errors[errors.size() / 2] <= median);
  MESSAGE(fmt::format("{} on {} nodes: time wrong by {:.1f} % in the median, {:.1f} % at worst", cluster.name,
                      cluster.nodes, 100 * errors[errors.size() / 2], 100 * errors.back()));
}

// Without hybrid sharding: tensor-parallel ranks are neighbours, data-parallel ones that many apart.
Placement placed(std::int64_t data_parallel, std::int64_t tensor_parallel, GroupKind kind,
                 const Cluster& cluster) {
  const bool is_tensor = kind == GroupKind::tensor_parallel;
  const program::Group group{kind, is_tensor ? tensor_parallel : data_parallel, 0,
                             is_tensor ? 1 : tensor_parallel};
  return place_group(group, data_parallel * tensor_parallel, cluster);
}

Cluster cluster_of(const std::string& name, std::int64_t nodes) {
  return describe::resolve_cluster(name, nodes, {});
}

void check_placement(const Placement& placement, std::int64_t ranks, std::int64_t per_node,
                     std::int64_t nodes, std::int64_t sharing) {
  CHECK(placement.ranks == ranks);
  CHECK(placement.ranks_per_node == per_node);
  CHECK(placement.nodes == nodes);
  CHECK(placement.groups_sharing == sharing);
}

}  // namespace

TEST_CASE("all-reduce on 8 GPUs of a node takes what was measured, from 16 MiB up") {
  const YAML::Node tables = facts()["measured_busbw_GBps"]["all_reduce_by_size"];
  check_table(cluster_of("nd-a100-v4", 1), tables["a100_80_8gpu"], "1KiB", 0.10, 0.02);
  check_table(cluster_of("ndm-a100-v4", 1), tables["a100_80_8gpu"], "1KiB", 0.10, 0.02);
  check_table(cluster_of("nd-h100-v5", 1), tables["h100_8gpu"], "1KiB", 0.10, 0.02);
  check_table(cluster_of("nd-h200-v5", 1), tables["h200_8gpu"], "1KiB", 0.10, 0.02);
  check_table(cluster_of("p6-b200", 1), tables["b200_8gpu_nccl_2_27_7"], "32KiB", 0.10, 0.02);
  check_table(cluster_of("p6-b200", 4), tables["b200_4nodes_32gpu_efa"], "32KiB", 0.10, 0.02);
}

TEST_CASE("tables that the profiles do not hold: other versions of the library on the same machines") {
  const YAML::Node tables = facts()["measured_busbw_GBps"]["all_reduce_by_size"];
  const YAML::Node independent = facts()["independent_all_reduce_by_size"];
  check_table(cluster_of("p5en", 1), tables["h200_8gpu_nccl_2_27_7"], "32KiB", 0.10, 0.02);
  check_table(cluster_of("p5en", 1), independent["h200_8gpu_nccl_2_30_7"], "1MiB", 0.10, 0.02);
  // Another program on the same kind of machine: the two tables differ by half at 32 MiB.
  check_table(cluster_of("p6-b200", 4), independent["b200_4nodes_32gpu_pytorch"], "1MiB", 0.60, 0.10);
}

TEST_CASE("sizes between two measured ones: a table of every second size gives those left out") {
  const YAML::Node tables = facts()["measured_busbw_GBps"]["all_reduce_by_size"];
  const std::vector<std::pair<std::string, std::string>> machines{
      {"nd-a100-v4", "a100_80_8gpu"}, {"nd-h100-v5", "h100_8gpu"}, {"nd-h200-v5", "h200_8gpu"}};
  for (const auto& machine : machines) {
    CAPTURE(machine.first);
    Cluster cluster = cluster_of(machine.first, 1);
    const auto rates = tables[machine.second]["busbw"].as<std::vector<double>>();
    const auto seconds = [&](std::size_t i) {
      return std::ldexp(1024.0, static_cast<int>(i)) * factor(Op::all_reduce, 8) / (rates[i] * 1e9);
    };
    std::vector<double> errors;
    for (std::size_t i = 15; i + 1 < rates.size(); ++i) {
      // Two sizes, of which the one left out is the geometric mean: it lies half a doubling behind the first.
      describe::AttainedCollective pair;
      pair.devices = 8;
      pair.first_bytes = kMiB;
      pair.busbw_gbytes_per_s = {1, 1};
      pair.seconds = {seconds(i - 1), seconds(i + 1)};
      cluster.device.edit().attained_collectives = {pair};
      const double predicted =
          collective_seconds(cluster, whole(cluster), Op::all_reduce, kMiB * std::sqrt(2.0));
      errors.push_back(relative_error(predicted, seconds(i)));
    }
    std::sort(errors.begin(), errors.end());
    CHECK(errors.back() < 0.12);
    CHECK(errors[errors.size() / 2] < 0.03);
  }
}

TEST_CASE("without a table: NCCL's form from the links' figures, with what it leaves out") {
  Cluster cluster = cluster_of("nd-a100-v4", 1);
  cluster.device.edit().attained_collectives.clear();
  check_table(cluster, facts()["measured_busbw_GBps"]["all_reduce_by_size"]["a100_80_8gpu"], "1KiB", 0.15,
              0.05);
}

TEST_CASE("large messages inside a node") {
  const auto check = [](const std::string& hardware, std::int64_t gpus, Op op, double bytes, double measured,
                        double limit) {
    CAPTURE(hardware);
    CAPTURE(gpus);
    const Cluster cluster = describe::resolve_cluster(hardware, 1, gpus);
    const double predicted = busbw(cluster, whole(cluster), op, bytes);
    CAPTURE(predicted);
    CHECK(relative_error(measured / predicted, 1) <= limit);
  };
  const YAML::Node lines = facts()["measured_busbw_GBps"]["large_messages"];
  const auto rate = [&](const std::string& system, const std::string& op, std::size_t i = 0) {
    for (const auto& line : lines) {
      if (!line["system"].as<std::string>().starts_with(system)) continue;
      if (!line["op"].as<std::string>().starts_with(op)) continue;
      return line["busbw"].IsSequence() ? line["busbw"][i].as<double>() : line["busbw"].as<double>();
    }
    FAIL("no line ", system);
    return 0.0;
  };
  check("nd-h200-v5", 8, Op::all_reduce, 16 * kGiB, rate("8x H200", "all_reduce NVLS"), 0.02);
  check("nd-h200-v5", 8, Op::all_gather, 16 * kGiB, rate("8x H200", "all_gather"), 0.02);
  check("nd-h200-v5", 8, Op::reduce_scatter, 16 * kGiB, rate("8x H200", "reduce_scatter"), 0.02);
  check("nd-h100-v5", 8, Op::all_gather, 16 * kGiB, rate("H100 SXM", "ring", 0), 0.02);
  check("nd-h100-v5", 8, Op::all_reduce, 16 * kGiB, rate("H100 SXM", "ring", 1), 0.02);
  check("nd-a100-v4", 8, Op::all_reduce, 16 * kGiB, rate("8x A100", "all_reduce"), 0.02);
  check("p4d", 8, Op::all_reduce, 16 * kGiB, rate("p4d", "all_reduce", 0), 0.02);
  for (std::int64_t gpus = 4; gpus <= 8; ++gpus) {
    const auto i = static_cast<std::size_t>(gpus - 4);
    check("nd-h200-v5", gpus, Op::all_reduce, 8 * kGiB, rate("H200, 4", "all_reduce", i), 0.03);
    check("p6-b200", gpus, Op::all_reduce, 8 * kGiB, rate("B200, 4", "all_reduce", i), 0.03);
  }
  check("mi300x", 8, Op::all_reduce, 4 * kGiB, rate("8x MI300X", "all_reduce", 0), 0.10);
  check("mi300x", 2, Op::all_reduce, 4 * kGiB, rate("8x MI300X", "all_reduce", 1), 0.10);
  check("h100-pcie", 2, Op::all_reduce, kGiB, rate("2x H100 PCIe", "all_reduce"), 0.10);
  check("a100-pcie", 2, Op::all_reduce, 8 * kGiB, rate("2x A100 PCIe", "all_reduce", 0), 0.10);
  check("a100-pcie", 3, Op::all_reduce, 8 * kGiB, rate("2x A100 PCIe", "all_reduce", 1), 0.10);
  check("jean-zay-v100", 4, Op::all_reduce, 4e9, rate("4x V100 of Jean Zay, one", "all_reduce"), 0.02);
  // What NCCL counts: nobody published a DGX-1 or DGX-2 alone.
  check("dgx1", 8, Op::all_reduce, 16 * kGiB, 120, 0.05);
  check("dgx2", 16, Op::all_reduce, 16 * kGiB, 120, 0.05);
}

TEST_CASE("large messages over nodes") {
  const auto check = [](const Cluster& cluster, Op op, double bytes, double measured, double limit) {
    CAPTURE(cluster.name);
    CAPTURE(cluster.nodes);
    const double predicted = busbw(cluster, whole(cluster), op, bytes);
    CAPTURE(predicted);
    CHECK(relative_error(measured / predicted, 1) <= limit);
  };
  // Rings: what the interfaces carry is the bus bandwidth.
  check(cluster_of("dgx-a100", 2), Op::all_reduce, 8 * kGiB, 192, 0.06);
  check(cluster_of("dgx-a100", 2), Op::reduce_scatter, 8 * kGiB, 192, 0.06);
  check(cluster_of("dgx-a100", 4), Op::all_reduce, 8 * kGiB, 192, 0.06);
  check(cluster_of("p5en", 4), Op::all_reduce, 4 * kGiB, 364.9, 0.05);
  check(cluster_of("nd-h200-v5", 248), Op::all_reduce, 16 * kGiB, 350, 0.15);
  check(cluster_of("p4d", 4), Op::all_reduce, 8 * kGiB, 29.6, 0.05);
  check(cluster_of("p4d", 3), Op::all_reduce, 8 * kGiB, 31.8, 0.10);
  for (const std::int64_t nodes : {8, 16, 32}) {
    check(cluster_of("p3dn", nodes), Op::all_reduce, 8 * kGiB, 7, 0.15);
  }
  // Far below what four interfaces of 100 Gbit/s could carry.
  check(cluster_of("jean-zay-v100", 4), Op::all_reduce, 4e9, 10.6, 0.05);
  check(cluster_of("jean-zay-v100", 16), Op::all_reduce, 4e9, 6.85, 0.05);
  // Quoted from a talk. NCCL counts 48 and this 46 GB/s for four interfaces of 100 Gbit/s.
  check(cluster_of("dgx1", 4), Op::all_reduce, 8 * kGiB, 40, 0.16);

  Cluster four_interfaces = cluster_of("dgx-a100", 2);
  zeroplan::edit(four_interfaces.node).nics->value = 4;
  zeroplan::edit(four_interfaces.node).internode_gbytes_per_s->value = 100;
  check(four_interfaces, Op::all_reduce, 8 * kGiB, 86, 0.08);
  check(four_interfaces, Op::all_reduce, 8 * kGiB, 91, 0.08);

  Cluster one_interface = cluster_of("dgx-h100", 4);
  one_interface.devices_per_node = 1;
  check(one_interface, Op::all_reduce, 8 * kGiB, 46, 0.06);
  check(one_interface, Op::all_reduce, 8 * kGiB, 49, 0.06);

  // Trees of two nodes exceed the wire: as the profile has it, and before Ampere.
  check(cluster_of("p4d", 2), Op::all_reduce, 8 * kGiB, 57.2, 0.05);
  Cluster four_v100 = cluster_of("dgx2", 2);
  four_v100.devices_per_node = 4;
  zeroplan::edit(four_v100.node).devices = 4;
  zeroplan::edit(four_v100.node).nics->value = 2;
  zeroplan::edit(four_v100.node).internode_gbytes_per_s->value = 25;
  zeroplan::edit(four_v100.node).attained_collectives.clear();
  check(four_v100, Op::all_reduce, 8 * kGiB, 41.55, 0.15);
}

TEST_CASE("a longer vector takes longer, and an empty one a latency") {
  const std::vector<std::pair<std::string, std::int64_t>> machines{
      {"dgx1", 1},    {"dgx1", 4},       {"dgx2", 1}, {"dgx2", 25},          {"p4d", 1},
      {"p4d", 4},     {"nd-h100-v5", 1}, {"p5en", 1}, {"p5en", 16},          {"p6-b200", 1},
      {"p6-b200", 4}, {"p6-b200", 16},   {"p3dn", 2}, {"a2-megagpu-16g", 1}, {"p6-b200", 2},
      {"dgx-a100", 2}};
  for (const auto& machine : machines) {
    const std::int64_t nodes = machine.second;
    const Cluster cluster = cluster_of(machine.first, nodes);
    CAPTURE(machine.first);
    CAPTURE(nodes);
    for (const std::int64_t per_node :
         {std::int64_t{1}, std::int64_t{2}, std::int64_t{5}, cluster.devices_per_node}) {
      const Placement placement{per_node * nodes, per_node, nodes, cluster.devices_per_node / per_node};
      if (placement.ranks == 1) continue;
      CAPTURE(per_node);
      for (const Op op : {Op::all_reduce, Op::reduce_scatter, Op::all_gather, Op::broadcast}) {
        CAPTURE(name_of(op));
        double last = collective_seconds(cluster, placement, op, 0);
        CHECK(last > 5e-6);
        CHECK(last < 2e-2);
        for (double bytes = 1; bytes < 64 * kGiB; bytes *= 1.3) {
          const double seconds = collective_seconds(cluster, placement, op, bytes);
          if (seconds < last * (1 - 1e-12)) FAIL_CHECK("at ", bytes, ": ", seconds, " after ", last);
          last = seconds;
        }
      }
    }
  }
  CHECK(collective_seconds(cluster_of("dgx1", 1), Placement{}, Op::all_reduce, 1e9) == 0);
}

TEST_CASE("latency of the ring and the tree, by hand") {
  const auto microseconds = [](const Cluster& cluster, Op op, double bytes) {
    return 1e6 * collective_seconds(cluster, whole(cluster), op, bytes);
  };
  // Protocol LL: 6.6 us and 0.6 us a step over NVLink, of which a gather of 8 takes 7 and an all-reduce 14.
  CHECK(microseconds(cluster_of("dgx1", 1), Op::all_gather, 0) == doctest::Approx(6.6 + 7 * 0.6));
  CHECK(microseconds(cluster_of("dgx1", 1), Op::all_reduce, 0) == doctest::Approx(6.6 + 14 * 0.6));
  // 1 us a step over PCIe.
  const Cluster pcie = describe::resolve_cluster("rtx-4090", 1, 4);
  CHECK(microseconds(pcie, Op::all_gather, 0) == doctest::Approx(6.6 + 3 * 1.0));
  // 32 ranks on 4 nodes: 31 steps, 3 of them over the network. A tree: 7 hops inside, 2 between, up and down.
  const Cluster ampere = cluster_of("dgx-a100", 4);
  CHECK(microseconds(ampere, Op::reduce_scatter, 0) == doctest::Approx(8.4 + 28 * 3.4 + 3 * 14));
  CHECK(microseconds(ampere, Op::all_reduce, 0) == doctest::Approx(8.4 + 2 * (7 * 4 + 2 * 14)));
  // A large all-reduce is a ring: 62 steps, 6 over the network, x 1.4, or x 1.9 before Ampere; 0.925 of the
  // wire's 200 and 50 GB/s.
  const double ring = 8.4 + 56 * 3.4 + 6 * 14;
  CHECK(microseconds(ampere, Op::all_reduce, kGiB) ==
        doctest::Approx(ring * 1.4 + kGiB * factor(Op::all_reduce, 32) / 185e3).epsilon(1e-9));
  CHECK(microseconds(cluster_of("dgx1", 4), Op::all_reduce, kGiB) ==
        doctest::Approx(ring * 1.9 + kGiB * factor(Op::all_reduce, 32) / 46.25e3).epsilon(1e-9));
}

TEST_CASE("a gather and a scatter are not half an all-reduce where the switch reduces") {
  for (const char* name : {"nd-h100-v5", "nd-h200-v5", "p6-b200"}) {
    const Cluster cluster = cluster_of(name, 1);
    const double all_reduce = collective_seconds(cluster, whole(cluster), Op::all_reduce, 8 * kGiB);
    const double gather = collective_seconds(cluster, whole(cluster), Op::all_gather, 8 * kGiB);
    const double scatter = collective_seconds(cluster, whole(cluster), Op::reduce_scatter, 8 * kGiB);
    CHECK(gather + scatter > 1.15 * all_reduce);
  }
  // A ring's all-reduce is the two of them.
  const Cluster ring = cluster_of("nd-a100-v4", 1);
  CHECK(2 * collective_seconds(ring, whole(ring), Op::all_gather, 8 * kGiB) ==
        doctest::Approx(collective_seconds(ring, whole(ring), Op::all_reduce, 8 * kGiB)).epsilon(0.01));
}

TEST_CASE("where groups are, by hand") {
  const Cluster cluster = cluster_of("dgx-a100", 8);
  // 64 ranks: 8 neighbours are a node, rank r of each of the 8 nodes is a data-parallel group.
  check_placement(placed(8, 8, GroupKind::tensor_parallel, cluster), 8, 8, 1, 1);
  check_placement(placed(8, 8, GroupKind::data_parallel, cluster), 8, 1, 8, 8);
  // Tensor-parallel groups of 2: 0-1, 2-3 ...; data-parallel: 0, 2, 4, 6 of each node, and 1, 3, 5, 7.
  check_placement(placed(32, 2, GroupKind::tensor_parallel, cluster), 2, 2, 1, 4);
  check_placement(placed(32, 2, GroupKind::data_parallel, cluster), 32, 4, 8, 2);
  check_placement(placed(64, 1, GroupKind::data_parallel, cluster), 64, 8, 8, 1);
  check_placement(placed(64, 1, GroupKind::tensor_parallel, cluster), 1, 1, 1, 8);
  // Tensor parallelism of 16: two whole nodes; data-parallel ranks are on every second node, one on each.
  check_placement(placed(4, 16, GroupKind::tensor_parallel, cluster), 16, 8, 2, 1);
  check_placement(placed(4, 16, GroupKind::data_parallel, cluster), 4, 1, 4, 8);
  // Fewer ranks than a node has.
  check_placement(placed(4, 1, GroupKind::data_parallel, cluster), 4, 4, 1, 1);
  check_placement(placed(2, 2, GroupKind::data_parallel, cluster), 2, 2, 1, 2);
  // 12 over 8 per node: the second group has 4 on one node and 8 on the next.
  CHECK(placed(2, 12, GroupKind::tensor_parallel, cluster).nodes == 3);
  check_placement(placed(1, 12, GroupKind::tensor_parallel, cluster), 12, 8, 2, 1);  // alone it begins a node
  // Hybrid sharding: 8 ranks of a node are a shard, ranks of the same place in each node replicas of each other; with
  // shards of 4 a node has two of each.
  check_placement(place_group({GroupKind::shard, 8, 3, 1}, 64, cluster), 8, 8, 1, 1);
  check_placement(place_group({GroupKind::replica, 8, 3, 8}, 64, cluster), 8, 1, 8, 8);
  check_placement(place_group({GroupKind::shard, 4, 3, 1}, 64, cluster), 4, 4, 1, 2);
  check_placement(place_group({GroupKind::replica, 16, 3, 4}, 64, cluster), 16, 2, 8, 4);
  // Shards of two nodes, and a replica on every second node.
  check_placement(place_group({GroupKind::shard, 16, 3, 1}, 64, cluster), 16, 8, 2, 1);
  check_placement(place_group({GroupKind::replica, 4, 3, 16}, 64, cluster), 4, 1, 4, 8);
}

TEST_CASE("groups share the interfaces of a node") {
  const Cluster cluster = cluster_of("dgx-a100", 8);
  const auto rate = [&](std::int64_t data_parallel, std::int64_t tensor_parallel) {
    const Placement placement = placed(data_parallel, tensor_parallel, GroupKind::data_parallel, cluster);
    return busbw(cluster, placement, Op::reduce_scatter, 16 * kGiB);
  };
  // 200 GB/s x 0.925 for the node; one of 2, 4 or 8 groups gets its part.
  CHECK(rate(64, 1) == doctest::Approx(185).epsilon(0.02));
  CHECK(rate(32, 2) == doctest::Approx(92.5).epsilon(0.02));
  CHECK(rate(16, 4) == doctest::Approx(46.25).epsilon(0.02));
  CHECK(rate(8, 8) == doctest::Approx(23.125).epsilon(0.02));
  // Tensor parallelism over two nodes: one group has both nodes' interfaces.
  const Placement tensor = placed(4, 16, GroupKind::tensor_parallel, cluster);
  CHECK(busbw(cluster, tensor, Op::all_reduce, 8 * kGiB) == doctest::Approx(185).epsilon(0.02));
  // One interface for 8 GPUs: a single rank a node has it to itself.
  const Cluster single = cluster_of("a2-highgpu-8g", 4);
  CHECK(busbw(single, {4, 1, 4, 1}, Op::all_gather, 8 * kGiB) == doctest::Approx(12.5 * 0.925).epsilon(0.02));
  CHECK(busbw(single, {4, 1, 4, 8}, Op::all_gather, 8 * kGiB) ==
        doctest::Approx(12.5 * 0.925 / 8).epsilon(0.02));
}

TEST_CASE("links that nobody described have no time") {
  const Cluster apart = describe::resolve_cluster("rtx-4090", 2, 16);  // no shipped node has it
  CHECK_FALSE(apart.node != nullptr);
  CHECK(std::isnan(collective_seconds(apart, whole(apart), Op::all_reduce, kMiB)));
  Cluster unplugged = cluster_of("dgx-a100", 2);
  zeroplan::edit(unplugged.node).nics->value = 0;
  zeroplan::edit(unplugged.node).internode_gbytes_per_s->value = 0;
  CHECK(std::isnan(collective_seconds(unplugged, whole(unplugged), Op::all_reduce, kMiB)));
  const Cluster processor = describe::resolve_cluster("cpu", 1, 2);
  CHECK(std::isnan(collective_seconds(processor, whole(processor), Op::all_reduce, kMiB)));
}
