#include "planner/describe/machine/cluster.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tests/describe/plan/plan_support.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;
using zeroplan::testing::problems_of;

namespace {

constexpr auto kUnset = std::optional<std::int64_t>{};

std::string refusal(const std::string& hw, std::optional<std::int64_t> nodes,
                    std::optional<std::int64_t> gpus) {
  return problems_of([&] { resolve_cluster(hw, nodes, gpus); });
}

std::string reading(const std::string& text) {
  return problems_of([&] { read_hardware_yaml(parse_yaml(text, "mine.yaml")); });
}

struct Shape {
  std::int64_t nodes;
  std::int64_t per_node;
  bool operator==(const Shape&) const = default;
};

Shape shape(const std::string& hw, std::optional<std::int64_t> nodes = {},
            std::optional<std::int64_t> gpus = {}) {
  const Cluster cluster = resolve_cluster(hw, nodes, gpus);
  return {cluster.nodes, cluster.devices_per_node};
}

#define CHECK_SAYS(text, part)                                   \
  do {                                                           \
    const std::string said = (text);                             \
    CHECK_MESSAGE(said.find(part) != said.npos, "said: ", said); \
  } while (false)

const std::string kDevice =
    "kind: device\n"
    "schema: zeroplan.hardware/1\n"
    "name: mine\n"
    "capacity:\n"
    "  cuda_gib: {value: 10.5, source: measured}\n";

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text)
      : path_((std::filesystem::temp_directory_path() / "zeroplan_cluster_test.yaml").string()) {
    std::ofstream(path_) << text;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE(
    "the cluster of the ZeRO paper: 25 DGX-2, 400 V100 32 GB, 800 Gbit/s between nodes (section 10.1)") {
  for (const char* name : {"zero-paper", "zero-paper-cluster"}) {
    const Cluster cluster = resolve_cluster(name, kUnset, kUnset);
    CHECK(cluster.name == "zero-paper");
    CHECK(cluster.nodes == 25);
    CHECK(cluster.devices() == 400);
    CHECK(cluster.device->name == "v100-32gb");
    CHECK(cluster.device->capacity.brochure_bytes->value == 32e9);
    REQUIRE(cluster.node != nullptr);
    CHECK(cluster.node->internode_gbytes_per_s->value == 100);
    CHECK(cluster.node->host_memory_bytes->value == 24 * 64e9);
    CHECK(cluster.node->fabric == Fabric::nvswitch);
    CHECK(cluster.description_source == "hardware_profiles/zero-paper.yaml");
  }
}

TEST_CASE("names that people type") {
  const std::vector<std::pair<std::string, std::string>> names{{"v100", "v100-32gb"},
                                                               {"v100-16gb", "v100-16gb"},
                                                               {"V100-32GB", "v100-32gb"},
                                                               {"a100", "a100-80gb"},
                                                               {"a100-40gb", "a100-40gb"},
                                                               {"a100-80gb", "a100-80gb"},
                                                               {"h100", "h100"},
                                                               {"h200", "h200"},
                                                               {"b200", "b200"},
                                                               {"mi300x", "mi300x"},
                                                               {"rtx4090", "rtx-4090"},
                                                               {"rtx-4090", "rtx-4090"},
                                                               {"RTX_4090", "rtx-4090"},
                                                               {"dgx1", "dgx1"},
                                                               {"dgx-2", "dgx2"},
                                                               {"dgx-a100", "dgx-a100"},
                                                               {"dgx-h100", "dgx-h100"},
                                                               {"p3dn", "p3dn"},
                                                               {"p4d.24xlarge", "p4d"},
                                                               {"p4de", "p4de"},
                                                               {"p5", "p5"},
                                                               {"nd-a100-v4", "nd-a100-v4"},
                                                               {"nd-h100-v5", "nd-h100-v5"},
                                                               {"cpu", "cpu"}};
  for (const auto& typed : names) {
    CAPTURE(typed.first);
    CHECK(resolve_cluster(typed.first, kUnset, kUnset).name == typed.second);
  }
}

TEST_CASE("a device alone has as many as asked for") {
  CHECK(shape("v100-32gb") == Shape{1, 1});
  CHECK(shape("v100-32gb", kUnset, 7) == Shape{1, 7});
  CHECK(shape("v100-32gb", 4, kUnset) == Shape{4, 1});
  CHECK(shape("v100-32gb", 4, 12) == Shape{4, 3});
  CHECK(shape("v100-32gb", kUnset, 17) == Shape{17, 1});
  CHECK(shape("v100-32gb", kUnset, 24) == Shape{2, 12});
  CHECK_SAYS(refusal("v100-32gb", 4, 13), "--gpus: found 13, expected a multiple of the 4 nodes");
  CHECK_SAYS(refusal("v100-32gb", 4, 3), "--gpus: found 3");
}

// findings/user.md, W3. NVLink does not reach beyond a node: 1,024 H100 are 128 nodes of eight.
TEST_CASE("a device alone is put into its usual nodes, or into small ones without a network") {
  const Cluster large = resolve_cluster("h100", kUnset, 1024);
  CHECK(large.nodes == 128);
  CHECK(large.devices_per_node == 8);
  REQUIRE(large.node != nullptr);
  CHECK(large.node->name == "dgx-h100");
  REQUIRE(large.assumed_node.has_value());
  CHECK(large.assumed_node->name == "dgx-h100");
  CHECK(!large.assumed_node->reason.empty());
  CHECK_SAYS(refusal("h100", 1, 16),
             "--gpus: found 16, expected at most 1 nodes x 8 devices of dgx-h100 = 8");

  const Cluster consumer = resolve_cluster("rtx-4090", kUnset, 16);
  CHECK(consumer.nodes == 2);
  CHECK_FALSE(consumer.node != nullptr);
  REQUIRE(consumer.assumed_node.has_value());
  CHECK_FALSE(resolve_cluster("dgx-h100", kUnset, kUnset).assumed_node.has_value());
  CHECK_FALSE(resolve_cluster("cpu", kUnset, 64).assumed_node.has_value());
  CHECK(shape("cpu", kUnset, 64) == Shape{1, 64});
}

TEST_CASE("the usual node of a device is a node of it") {
  int with_node = 0;
  for (const HardwareName& preset : preset_hardware_names()) {
    if (preset.kind != HardwareName::Kind::device) continue;
    CAPTURE(preset.name);
    const Device device = find_device(preset.name);
    CHECK(device.usual_node.empty() == device.usual_node_reason.empty());
    if (device.usual_node.empty()) continue;
    ++with_node;
    CHECK(find_node(device.usual_node)->device == preset.name);
  }
  CHECK(with_node >= 7);
}

// findings/user.md, W1: 23 of the 24 had none, and unknown counted as enough.
TEST_CASE("every shipped node has its host memory, from a source") {
  int nodes = 0;
  for (const HardwareName& preset : preset_hardware_names()) {
    if (preset.kind != HardwareName::Kind::node) continue;
    ++nodes;
    CAPTURE(preset.name);
    const Node node = *find_node(preset.name);
    REQUIRE(node.host_memory_bytes.has_value());
    CHECK(node.host_memory_bytes->source.size() > 20);
    CHECK(node.host_memory_bytes->value >= 128 * kGB);
    CHECK(node.host_memory_bytes->value <= 5000 * kGB);
  }
  CHECK(nodes == 24);
}

TEST_CASE("a node is used whole, several times, or in part when it is the only one") {
  CHECK(shape("dgx-a100") == Shape{1, 8});
  CHECK(shape("dgx-a100", 3, kUnset) == Shape{3, 8});
  for (const std::int64_t gpus : {1, 7, 8}) CHECK(shape("dgx-a100", kUnset, gpus) == Shape{1, gpus});
  CHECK(shape("dgx-a100", kUnset, 16) == Shape{2, 8});
  CHECK(shape("dgx-a100", 2, 16) == Shape{2, 8});
  CHECK(shape("dgx-a100", 1, 4) == Shape{1, 4});
  CHECK_SAYS(refusal("dgx-a100", kUnset, 9), "--gpus: found 9, expected at most 8 or a multiple of it");
  CHECK_SAYS(refusal("dgx-a100", 2, 8), "--gpus: found 8, expected 2 nodes x 8 devices of dgx-a100 = 16");
  CHECK_SAYS(refusal("dgx-a100", 1, 16), "1 nodes x 8 devices of dgx-a100 = 8");
}

TEST_CASE("a cluster may be used in part, never beyond its size") {
  CHECK(shape("zero-paper", 4, kUnset) == Shape{4, 16});
  CHECK(shape("zero-paper", kUnset, 64) == Shape{4, 16});
  CHECK(shape("zero-paper", kUnset, 4) == Shape{1, 4});
  CHECK(shape("zero-paper", kUnset, 400) == Shape{25, 16});
  CHECK(shape("zero-paper", 25, 400) == Shape{25, 16});
  CHECK_SAYS(refusal("zero-paper", 26, kUnset),
             "--nodes: found 26, expected at most the 25 nodes of zero-paper");
  CHECK_SAYS(refusal("zero-paper", kUnset, 416), "--gpus: found 416, expected at most 25 nodes x 16 devices");
  CHECK_SAYS(refusal("zero-paper", kUnset, 401), "--gpus: found 401");
  CHECK_SAYS(refusal("zero-paper", 2, 400), "--gpus: found 400, expected 2 nodes x 16 devices of dgx2 = 32");
}

TEST_CASE("counts below one are refused") {
  CHECK_SAYS(refusal("dgx2", 0, kUnset), "--nodes: found 0");
  CHECK_SAYS(refusal("dgx2", kUnset, -1), "--gpus: found -1");
  CHECK_SAYS(refusal("dgx2", kUnset, 9'000'000'000'000'000'000), "--gpus: found 9000000000000000000");
}

TEST_CASE("an unknown name is answered with the nearest") {
  CHECK_SAYS(refusal("v100-23gb", kUnset, kUnset), "nearest: v100-32gb");
  CHECK_SAYS(refusal("dgx-h10", kUnset, kUnset), "nearest: dgx-h100");
  CHECK_SAYS(refusal("abacus", kUnset, kUnset), "--hw: found \"abacus\"");
  CHECK(refusal("abacus", kUnset, kUnset).find("nearest") == std::string::npos);
  CHECK_SAYS(refusal("no/such.yaml", kUnset, kUnset), "no/such.yaml");
  CHECK_SAYS(problems_of([] { find_device("dgx2"); }), "expected a device preset");
  CHECK_SAYS(problems_of([] { find_node("p4f"); }), "nearest: p4");
}

TEST_CASE("ranks on the CPU share the memory of the machine") {
  const Cluster one = resolve_cluster("cpu", kUnset, kUnset);
  const Cluster four = resolve_cluster("cpu", kUnset, 4);
  CHECK(one.device->capacity.usable_bytes() == host_memory_bytes());
  CHECK(four.device->capacity.usable_bytes() == host_memory_bytes() / 4);
  CHECK(four.device->capacity.basis() == "memory of this machine, shared by its ranks");
  CHECK(four.nodes == 1);
  CHECK(four.devices_per_node == 4);
  REQUIRE(four.node != nullptr);
  CHECK(four.node->fabric == Fabric::shared_memory);
}

TEST_CASE("a user's file: device, node with a named or nested device, cluster with a named or nested node") {
  const TemporaryFile device(kDevice);
  const Cluster own = resolve_cluster(device.path(), kUnset, 2);
  CHECK(own.name == "mine");
  CHECK(own.devices() == 2);
  CHECK(own.device->capacity.usable_bytes() == 11274289152);  // 10.5 GiB
  CHECK(own.description_source == device.path());

  const std::string nested_device =
      "device: {name: mine, capacity: {nvml_mib: 1000, driver_reserved_mib: 24}}\n";
  const HardwareDescription node = read_hardware_yaml(parse_yaml(
      "kind: node\nschema: zeroplan.hardware/1\nname: box\ndevices: 2\nfabric: pcie\n" + nested_device,
      "box.yaml"));
  CHECK(node.device->capacity.usable_bytes() == 976 * 1048576);
  CHECK(node.device->capacity.nvml_bytes->source == "box.yaml");
  CHECK(node.node->devices == 2);
  CHECK_FALSE(node.nodes.has_value());

  const HardwareDescription cluster = read_hardware_yaml(
      parse_yaml("kind: cluster\nschema: zeroplan.hardware/1\nname: lab\nnodes: 3\n"
                 "node: {name: box, device: rtx4090, devices: 4, fabric: pcie, host_memory_gib: 256}\n",
                 "lab.yaml"));
  CHECK(cluster.nodes == 3);
  CHECK(cluster.device->name == "rtx-4090");
  CHECK(cluster.node->device == "rtx-4090");
  CHECK(cluster.node->host_memory_bytes->value == 274877906944.0);
}

TEST_CASE("malformed descriptions: one clear problem with file, line and key each") {
  CHECK(reading(kDevice) == "");
  CHECK_SAYS(reading(kDevice + "pcie_gbytes_per_sec: 16\n"), "mine.yaml:6: pcie_gbytes_per_sec: unknown key");
  CHECK_SAYS(reading(kDevice + "pcie_gbytes_per_sec: 16\n"), "nearest: pcie_gbytes_per_s");
  CHECK_SAYS(reading(kDevice + "pcie_gbytes_per_s: -1\n"), "mine.yaml:6: pcie_gbytes_per_s: ");
  CHECK_SAYS(reading(kDevice + "pcie_gbytes_per_s: 16GB\n"), "pcie_gbytes_per_s: ");
  CHECK_SAYS(reading(kDevice + "pcie_gbytes_per_s: .nan\n"), "pcie_gbytes_per_s: ");
  CHECK_SAYS(reading(kDevice + "pcie_gbytes_per_s: 1e400\n"), "pcie_gbytes_per_s: ");
  CHECK_SAYS(reading(kDevice + "pcie_gbytes_per_s: [16]\n"), "pcie_gbytes_per_s: found a list");
  CHECK_SAYS(reading(kDevice + "pcie_gbytes_per_s: {value: 16}\n"), "pcie_gbytes_per_s.source: missing");
  CHECK_SAYS(reading(kDevice + "pcie_gbytes_per_s: {source: x}\n"), "pcie_gbytes_per_s.value: missing");
  CHECK_SAYS(reading(kDevice + "pcie_gbytes_per_s: {value: 16, source: x, unit: GB}\n"),
             "pcie_gbytes_per_s.unit: unknown key");
  CHECK_SAYS(reading(kDevice + "multiprocessors: 80.5\n"),
             "multiprocessors: found 80.5, expected a whole number");
  CHECK_SAYS(reading(kDevice + "  nvml_gb: 1e7\n"), "mine.yaml:6: capacity.nvml_gb: ");
  CHECK_SAYS(reading(kDevice + "  nvml_g: 12\n"), "capacity.nvml_g: unknown key; nearest: nvml_");
  CHECK_SAYS(reading(kDevice + "  cuda_gb: 12\n"), "the same size as ");
  CHECK_SAYS(reading(kDevice + "  nvml_bytes: 12\n"), "expected at least 1048576");
  CHECK_SAYS(reading(kDevice + "  nvml_gib: 10\n"), "is a unit wrong?");
  CHECK_SAYS(reading(kDevice + "  host_memory: true\n"), "found host_memory: true beside a size");
  CHECK_SAYS(reading(kDevice + "gemm_attained:\n  - {dtype: bf16, shape: x, tflops: [2, 1], source: x}\n"),
             "gemm_attained[0].tflops: expected a number or [LOW, HIGH]");
  CHECK_SAYS(reading(kDevice + "gemm_attained:\n  - {dtype: bf16, shape: x, source: x}\n"),
             "gemm_attained[0].tflops: missing");
  CHECK_SAYS(reading(kDevice + "gemm_attained: [fast]\n"), "gemm_attained[0]: ");
  CHECK_SAYS(reading(kDevice + "usual_node: {name: dgx2}\n"), "usual_node.reason: missing");

  const std::string head = "schema: zeroplan.hardware/1\nname: x\n";
  CHECK_SAYS(reading(head + "kind: device\n"), "capacity: missing");
  CHECK_SAYS(reading(head + "kind: device\ncapacity: {}\n"), "capacity: expected at least one of");
  CHECK_SAYS(reading(head + "kind: device\ncapacity: {nvml_mib: 10, driver_reserved_mib: 10}\n"),
             "leaves nothing");
  CHECK_SAYS(reading(head + "kind: gadget\n"), "mine.yaml:3: kind: found \"gadget\", expected one of");
  CHECK_SAYS(reading(head), "kind: missing");
  CHECK_SAYS(reading("kind: device\nname: x\ncapacity: {cuda_gib: 1}\n"), "schema: missing");
  CHECK_SAYS(reading("kind: device\nschema: zeroplan.hardware/2\nname: x\ncapacity: {cuda_gib: 1}\n"),
             "schema: found \"zeroplan.hardware/2\"");
  CHECK_SAYS(reading("[1, 2]\n"), "mine.yaml:1: ");

  const std::string node = head + "kind: node\ndevices: 8\nfabric: pcie\n";
  CHECK(reading(node + "device: h100\n") == "");
  CHECK_SAYS(reading(node + "device: h10\n"),
             "mine.yaml:6: device: found \"h10\", expected a device preset; nearest: h100");
  CHECK_SAYS(reading(node + "device: dgx2\n"), "device: found \"dgx2\", expected a device preset");
  CHECK_SAYS(reading(node), "device: missing");
  CHECK_SAYS(reading(node + "device: {kind: node, name: x, capacity: {cuda_gib: 1}}\n"),
             "device.kind: found node, expected device");
  CHECK_SAYS(reading(head + "kind: node\ndevice: h100\ndevices: 0\nfabric: nvswich\n"), "nearest: nvswitch");
  CHECK_SAYS(reading(head + "kind: node\ndevice: h100\ndevices: 0\nfabric: nvswich\n"),
             "mine.yaml:5: devices: ");
  // Gbit/s entered as GB/s.
  CHECK_SAYS(reading(node + "device: h100\nnics: 8\nnic_gbits_per_s: 100\ninternode_gbytes_per_s: 800\n"),
             "found 800, expected at most 8 interfaces x 100 Gbit/s / 8 = 100 GB/s");

  const std::string cluster = head + "kind: cluster\n";
  CHECK(reading(cluster + "node: dgx2\nnodes: 25\n") == "");
  CHECK_SAYS(reading(cluster + "node: dgx3\nnodes: 25\n"),
             "node: found \"dgx3\", expected a node preset; nearest: dgx");
  CHECK_SAYS(reading(cluster + "node: dgx2\n"), "nodes: missing");
  CHECK_SAYS(reading(cluster + "node: v100\nnodes: 0.5\n"), "nodes: ");
}
