#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "executor/machine/machine.hpp"
#include "planner/describe/machine/cluster.hpp"
#include "planner/describe/text/document.hpp"
#include "reports/detected_report.hpp"
#include "reports/machine_description.hpp"
#include "reports/writers.hpp"
#include "tests/support/fake_nvml.hpp"
#include "tests/support/json_schema.hpp"
#include "tests/support/machine_tree.hpp"

using namespace zeroplan;
using nlohmann::json;
using test::FakeNvml;
using test::MachineTree;

namespace {

reports::Report report_of(const std::string& machine, const MachineTree& tree,
                          const std::string& library = test::kNewNvml) {
  const FakeNvml fake(machine);
  return reports::detected_report("0.0.0", executor::find_machine({library, tree.root()}));
}

json answer_of(const reports::Report& report) {
  return json::parse(reports::write(report, reports::Format::json));
}

// Eight interfaces of 400 Gbit/s, each beside one of the eight GPUs, and 2 TB of memory.
void add_dgx_host(const MachineTree& tree) {
  tree.add_host(56, 1'953'125'000);
  for (int i = 0; i < 8; ++i) {
    const std::string root =
        "pci0000:" + std::string(1, static_cast<char>('a' + i / 2)) + std::to_string(i % 2);
    const std::string bus = "1" + std::string(1, "abcdef"[i < 6 ? i : 0]);
    const std::string gpu = i < 6 ? "0000:" + bus + ":00.0" : "0000:2" + std::to_string(i - 6) + ":00.0";
    const std::string nic = "0000:4" + std::to_string(i) + ":00.0";
    tree.add_pci(root, gpu);
    tree.add_pci(root, nic);
    tree.add_rdma("mlx5_" + std::to_string(i), nic, "InfiniBand", "400 Gb/sec (4X NDR)", "");
  }
}

// The description that the report has, read as --hw reads a file.
describe::HardwareDescription described(const reports::Report& report) {
  return describe::read_hardware_yaml(
      describe::parse_yaml(reports::write_yaml(*report.data.find("description")), "here.yaml"));
}

}  // namespace

TEST_CASE("hw detect: eight H200 with eight fast interfaces") {
  const MachineTree tree;
  add_dgx_host(tree);
  const reports::Report report = report_of("h200", tree);
  const json answer = answer_of(report);
  REQUIRE(answer["gpus"].size() == 8);
  CHECK(answer["gpus"][0]["preset"] == "h200");
  CHECK(answer["driver"]["cuda_version"] == "12.8");
  CHECK(answer["fabric"] == "nvswitch");
  CHECK(answer["paths"].size() == 28);
  REQUIRE(answer["nics"].size() == 8);
  CHECK(answer["nics"][5]["gpus"] == json::array({5}));
  CHECK(answer["nics"][7]["gpus"] == json::array({7}));
  // Of the nodes with eight H200 only one has eight interfaces of 400 Gbit/s and about 2 TB; the others have 16, or 3 TB.
  CHECK(answer["node_presets"] == json::array({"nd-h200-v5"}));
  CHECK(answer["hw"] == "nd-h200-v5");
  const std::string text = reports::write(report, reports::Format::table);
  CHECK(text.find("zeroplan fit gpt2-xl --hw nd-h200-v5 --zero 2") != std::string::npos);

  const describe::HardwareDescription node = described(report);
  CHECK(node.device->name == "h200");
  CHECK(node.node->devices == 8);
  CHECK(node.node->nics->value == 8);
  CHECK(node.node->nic_gbits_per_s->value == 400);
  CHECK(node.node->link_gbytes_per_s_per_device->value == doctest::Approx(18 * 26.562));
  CHECK(node.node->link_gbytes_per_s_per_device->source == "NVML on this machine");
  CHECK(node.node->host_memory_bytes->value == 1'953'125'000.0 * 1024);
}

TEST_CASE("hw detect: one GPU is a device") {
  const MachineTree tree;
  const json answer = answer_of(report_of("one-h200", tree));
  CHECK(answer["hw"] == "h200 --gpus 1");
  CHECK(answer["fabric"].is_null());
  CHECK(answer["description"]["kind"] == "device");
}

TEST_CASE("hw detect: bridged pairs are PCIe, and no shipped node is like that") {
  const MachineTree tree;
  const reports::Report report = report_of("a100-pcie", tree);
  const json answer = answer_of(report);
  CHECK(answer["fabric"] == "pcie");
  CHECK(answer["hw"] == "a100-pcie-80gb --gpus 4");
  CHECK(answer["node_presets"].empty());
  const describe::HardwareDescription node = described(report);
  CHECK(node.device->name == "a100-pcie-80gb");
  // PCIe 4.0: 16 GT/s a lane, 128 of 130 bits, 16 lanes.
  CHECK(node.node->link_gbytes_per_s_per_device->value == doctest::Approx(31.5).epsilon(0.001));
}

TEST_CASE("hw detect: a part that is not shipped gets a file to fill in") {
  const MachineTree tree;
  tree.add_host(8, 1'000'000);
  const reports::Report report = report_of("h100-nvl", tree);
  const json answer = answer_of(report);
  CHECK(answer["hw"].is_null());
  CHECK(answer["gpus"][0]["preset"].is_null());
  const describe::HardwareDescription node = described(report);
  const describe::Device& device = node.device;
  CHECK(device.name == "nvidia-h100-nvl");
  CHECK(device.architecture == "Hopper");
  CHECK(device.capacity.nvml_bytes->value == 95830.0 * kMiB);
  CHECK(device.capacity.usable_bytes() == (95830 - 622) * kMiB);
  CHECK(!device.peak_bf16_tflops);
  // 3201 MHz, both edges, 6144 bits.
  CHECK(device.memory_gbytes_per_s->value == doctest::Approx(3201e6 * 2 * 6144 / 8 / 1e9));
  CHECK(device.nvlink_links->value == 18);
  CHECK(device.pcie_gbytes_per_s->value == doctest::Approx(63.0).epsilon(0.001));
  CHECK(node.node->fabric == describe::Fabric::cube_mesh);
  const std::string text = reports::write(report, reports::Format::table);
  CHECK(text.find("  kind: \"node\"\n  name: \"2-x-nvidia-h100-nvl\"\n") != std::string::npos);
  CHECK(text.find("--describe FILE") != std::string::npos);
}

TEST_CASE("hw detect: an instance of MIG is no device that is shipped") {
  const MachineTree tree;
  const json answer = answer_of(report_of("a100-mig", tree));
  CHECK(answer["gpus"][2]["preset"].is_null());
  CHECK(answer["gpus"][0]["preset"] == "a100-pcie-80gb");
  CHECK(answer["hw"].is_null());
}

TEST_CASE("hw detect: an old library gives what it knows") {
  const MachineTree tree;
  const json answer = answer_of(report_of("v100", tree, test::kOldNvml));
  CHECK(answer["gpus"][0]["preset"] == "v100-16gb");
  CHECK(answer["gpus"][0]["reserved_bytes"].is_null());
  CHECK(answer["fabric"].is_null());
  CHECK(answer["hw"] == "v100-16gb --gpus 8");
}

TEST_CASE("hw detect: without a GPU the host is shown, and why there is none") {
  const MachineTree tree;
  tree.add_host(8, 1'000'000);
  const reports::Report report = report_of("", tree, "/nowhere/libnvidia-ml.so.1");
  const json answer = answer_of(report);
  CHECK(answer["host"]["logical_cpus"] == 32);
  CHECK(answer["driver"]["works"] == false);
  CHECK(answer["hw"] == "cpu");
  CHECK(answer["description"].is_null());
  const std::string text = reports::write(report, reports::Format::table);
  CHECK(text.find("There is no GPU to plan for: there is no NVIDIA driver here") != std::string::npos);
  CHECK(text.find("Made-up CPU 9000: 2 sockets, 16 cores, 32 logical CPUs, 2 NUMA nodes") !=
        std::string::npos);
}

TEST_CASE("hw detect: every made-up machine answers by the schema, in at most 100 columns") {
  const MachineTree tree;
  add_dgx_host(tree);
  std::vector<test::Document> answers;
  for (const char* machine : {"h200", "one-h200", "v100", "a100-pcie", "a100-mig", "h100-nvl", "throttled",
                              "lost", "old-cuda", "not-loaded", "mismatch", "none"}) {
    for (const std::string& library : {test::kNewNvml, test::kOldNvml}) {
      const reports::Report report = report_of(machine, tree, library);
      answers.push_back({"detected", answer_of(report)});
      std::size_t width = 0;
      for (const char c : reports::write(report, reports::Format::table)) {
        width = c == '\n' ? 0 : width + 1;
        REQUIRE(width <= 100);
      }
    }
  }
  if (!test::can_validate()) return;
  for (const std::string& violation : test::schema_violations(answers)) FAIL_CHECK(violation);
}
