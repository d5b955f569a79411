#include "planner/describe/machine/recognize.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

using namespace zeroplan;

namespace {

FoundGpu gpu_of(const std::string& name, Bytes mebibytes) {
  FoundGpu gpu;
  gpu.name = name;
  gpu.total_bytes = mebibytes * kMiB;
  return gpu;
}

// `count` GPUs alike; those of which `linked` holds reach each other over NVLink.
FoundMachine machine_of(const FoundGpu& gpu, int count, bool switched, bool (*linked)(int, int)) {
  FoundMachine machine;
  for (int i = 0; i < count; ++i) {
    machine.gpus.push_back(gpu);
    machine.gpus.back().index = i;
    machine.gpus.back().nvlinks_end_in_a_switch = switched;
    for (int j = 0; j < i; ++j) {
      FoundPath path;
      path.first = j;
      path.second = i;
      path.nvlink = linked(j, i);
      machine.paths.push_back(path);
    }
  }
  return machine;
}

bool all_linked(int, int) { return true; }
bool cube_mesh(int a, int b) { return a / 4 == b / 4 || a % 4 == b % 4; }
bool bridged_pairs(int a, int b) { return a / 2 == b / 2; }

void add_nics(FoundMachine& machine, int count, double gbits) {
  for (int i = 0; i < count; ++i) {
    FoundNic nic;
    nic.active = true;
    nic.gbits_per_s = gbits;
    machine.nics.push_back(nic);
  }
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("the names that NVML gives lead to the shipped descriptions") {
  // As NVIDIA's tools print them, with the memory that they print: nvidia-smi's in MiB.
  const std::vector<std::pair<FoundGpu, std::string>> known{
      {gpu_of("NVIDIA H200", 143771), "h200"},
      {gpu_of("NVIDIA H100 80GB HBM3", 81559), "h100"},
      {gpu_of("NVIDIA H100 PCIe", 81559), "h100-pcie"},
      {gpu_of("NVIDIA A100-SXM4-80GB", 81920), "a100-80gb"},
      {gpu_of("NVIDIA A100-SXM4-40GB", 40960), "a100-40gb"},
      {gpu_of("A100-SXM4-40GB", 40536), "a100-40gb"},  // drivers before 470 leave out the maker
      {gpu_of("NVIDIA A100 80GB PCIe", 81920), "a100-pcie-80gb"},
      {gpu_of("NVIDIA A100-PCIE-40GB", 40960), "a100-pcie-40gb"},
      {gpu_of("Tesla V100-SXM2-32GB", 32510), "v100-32gb"},
      {gpu_of("Tesla V100-SXM3-32GB", 32480), "v100-32gb"},
      {gpu_of("Tesla V100-SXM2-16GB", 16160), "v100-16gb"},
      {gpu_of("Tesla T4", 15360), "t4"},
      {gpu_of("NVIDIA L4", 23034), "l4"},
      {gpu_of("NVIDIA L40S", 46068), "l40s"},
      {gpu_of("NVIDIA A10G", 23028), "a10g"},
      {gpu_of("NVIDIA B200", 183359), "b200"},
      {gpu_of("NVIDIA GeForce RTX 3090", 24576), "rtx-3090"},
      {gpu_of("NVIDIA GeForce RTX 4090", 24564), "rtx-4090"},
      {gpu_of("NVIDIA GeForce RTX 5090", 32607), "rtx-5090"}};
  for (const auto& [gpu, preset] : known) {
    const std::string& name = *gpu.name;
    CAPTURE(name);
    CHECK(describe::device_preset_of(gpu) == preset);
  }
}

TEST_CASE("parts that are not shipped are not taken for others") {
  CHECK(!describe::device_preset_of(gpu_of("NVIDIA H100 NVL", 95830)));
  CHECK(!describe::device_preset_of(gpu_of("Tesla V100-PCIE-32GB", 32510)));
  CHECK(!describe::device_preset_of(gpu_of("NVIDIA A100-SXM-64GB", 65536)));
  CHECK(!describe::device_preset_of(gpu_of("NVIDIA H200", 81559)));  // as a partition shows itself
  CHECK(!describe::device_preset_of(FoundGpu{}));
  FoundGpu divided = gpu_of("NVIDIA H200", 143771);
  divided.mig = true;
  CHECK(!describe::device_preset_of(divided));
}

TEST_CASE("how GPUs are linked") {
  const FoundGpu gpu = gpu_of("Tesla V100-SXM2-16GB", 16160);
  CHECK(describe::fabric_of(machine_of(gpu, 8, true, all_linked)) == describe::Fabric::nvswitch);
  CHECK(describe::fabric_of(machine_of(gpu, 8, false, cube_mesh)) == describe::Fabric::cube_mesh);
  CHECK(describe::fabric_of(machine_of(gpu, 4, false, bridged_pairs)) == describe::Fabric::pcie);
  CHECK(describe::fabric_of(machine_of(gpu, 2, false, bridged_pairs)) == describe::Fabric::cube_mesh);
  CHECK(!describe::fabric_of(machine_of(gpu, 1, false, all_linked)));
  FoundMachine unknown = machine_of(gpu, 4, false, all_linked);
  unknown.paths[2].nvlink.reset();
  CHECK(!describe::fabric_of(unknown));
}

TEST_CASE("nodes by devices, links, network and memory") {
  FoundMachine dgx = machine_of(gpu_of("NVIDIA H100 80GB HBM3", 81559), 8, true, all_linked);
  CHECK(describe::node_presets_of(dgx) ==
        Names{"a3-highgpu-8g", "a3-megagpu-8g", "dgx-h100", "nd-h100-v5", "p5"});
  add_nics(dgx, 8, 400);
  add_nics(dgx, 2, 10);  // to log in
  dgx.host.memory_bytes = Bytes{2'000'000'000'000};
  CHECK(describe::node_presets_of(dgx) == Names{"dgx-h100", "nd-h100-v5"});  // both have that
  dgx.nics.clear();
  add_nics(dgx, 32, 100);
  CHECK(describe::node_presets_of(dgx) == Names{"p5"});
  dgx.gpus.resize(7);
  CHECK(describe::node_presets_of(dgx).empty());

  const FoundGpu v100 = gpu_of("Tesla V100-SXM2-16GB", 16160);
  CHECK(describe::node_presets_of(machine_of(v100, 8, false, cube_mesh)) == Names{"dgx1", "p3"});
  CHECK(describe::node_presets_of(machine_of(v100, 8, true, all_linked)).empty());
}

TEST_CASE("the network that a training may take") {
  FoundMachine machine;
  CHECK(describe::network_of(machine).nics == 0);
  add_nics(machine, 4, 200);
  machine.nics[1].active = false;
  CHECK(describe::network_of(machine).nics == 3);
  CHECK(describe::network_of(machine).gbits_per_s == 200.0);
  add_nics(machine, 1, 100);
  CHECK(describe::network_of(machine).nics == 0);  // no one rate
}

TEST_CASE(
    "a GPU that no shipped description is of has a nearest one: its compute capability, the nearest memory") {
  FoundGpu gpu = gpu_of("NVIDIA H100 NVL", 95830);
  CHECK(!describe::nearest_device_preset(gpu));  // without its compute capability
  gpu.compute_capability = 9.0;
  const auto nearest = describe::nearest_device_preset(gpu);
  REQUIRE(nearest);
  CHECK(nearest->starts_with("h100"));
  gpu.total_bytes = 140000 * kMiB;
  CHECK(describe::nearest_device_preset(gpu) == "h200");
  gpu.compute_capability = 3.5;
  CHECK(!describe::nearest_device_preset(gpu));
}
