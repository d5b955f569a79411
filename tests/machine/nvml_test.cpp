#include "executor/machine/nvml.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/fake_nvml.hpp"

using namespace zeroplan;
using test::FakeNvml;
using test::kNewNvml;
using test::kOldNvml;

TEST_CASE("NVML: every figure of a GPU, in its unit") {
  const FakeNvml fake("h200");
  const executor::Nvml nvml(kNewNvml);
  REQUIRE(nvml.driver().works);
  CHECK(nvml.driver().version == "570.86.15");
  CHECK(nvml.driver().cuda_version == 12080);
  REQUIRE(nvml.gpus() == 8);
  const FoundGpu gpu = nvml.gpu(3);
  CHECK(gpu.index == 3);
  CHECK(gpu.name == "NVIDIA H200");
  CHECK(gpu.uuid == "GPU-00000000-0000-0000-0000-000000000003");
  CHECK(gpu.pci_address == "0000:1d:00.0");
  CHECK(gpu.total_bytes == 143771 * kMiB);
  CHECK(gpu.reserved_bytes == 622 * kMiB);
  CHECK(gpu.used_bytes == 0);
  CHECK(gpu.compute_capability == 9.0);
  CHECK(gpu.power_limit_watts == 700.0);
  CHECK(gpu.power_watts == 75.5);
  CHECK(gpu.sm_clock_mhz == 345);
  CHECK(gpu.most_sm_clock_mhz == 1980);
  CHECK(gpu.memory_clock_mhz == 3201);
  CHECK(gpu.most_memory_clock_mhz == 3201);
  CHECK(gpu.memory_bus_bits == 6144);
  CHECK(gpu.throttle_reasons == std::vector<std::string>{"idle"});
  CHECK(gpu.ecc == true);
  CHECK(!gpu.mig);  // refused: this part of the interface is not for that GPU
  CHECK(gpu.persistence == true);
  CHECK(gpu.nvlinks == 18);
  CHECK(gpu.nvlink_gbytes_per_s == 26.562);
  CHECK(gpu.nvlinks_end_in_a_switch == true);
  CHECK(gpu.pcie_generation == 5);
  CHECK(gpu.pcie_lanes == 16);
}

TEST_CASE("NVML: pairs of GPUs, over NVLink and over PCIe") {
  const FakeNvml fake("v100");
  const executor::Nvml nvml(kNewNvml);
  const std::vector<FoundPath> paths = nvml.paths();
  REQUIRE(paths.size() == 28);
  // In the cube mesh of a DGX-1 each GPU has links to four of the other seven: 8 x 4 / 2 pairs.
  CHECK(std::count_if(paths.begin(), paths.end(),
                      [](const FoundPath& path) { return path.nvlink == true; }) == 16);
  CHECK(paths.front().first == 0);
  CHECK(paths.front().second == 1);
  CHECK(paths.front().pcie == "one PCIe switch");
  CHECK(paths.back().nvlink == true);
  CHECK(paths[3].second == 4);
  CHECK(paths[3].pcie == "the link between NUMA nodes");
  CHECK(nvml.gpu(0).nvlinks == 6);
  CHECK(nvml.gpu(0).nvlinks_end_in_a_switch == false);
}

TEST_CASE("NVML: reasons for low clocks in words, also those without a name") {
  const FakeNvml fake("throttled");
  const executor::Nvml nvml(kNewNvml);
  CHECK(nvml.gpu(1).throttle_reasons ==
        std::vector<std::string>{"power cap", "hardware thermal slowdown", "reason 0x8000"});
  CHECK(nvml.gpu(1).persistence == false);
}

TEST_CASE("NVML: a library that lacks functions leaves out what they tell, and no more") {
  const FakeNvml fake("a100-pcie");
  const executor::Nvml nvml(kOldNvml);
  REQUIRE(nvml.driver().works);
  REQUIRE(nvml.gpus() == 4);
  const FoundGpu gpu = nvml.gpu(0);
  CHECK(gpu.name == "NVIDIA A100 80GB PCIe");
  CHECK(gpu.total_bytes == 81920 * kMiB);
  CHECK(gpu.used_bytes == 636 * kMiB);  // the first form counts the driver's own
  CHECK(!gpu.reserved_bytes);
  CHECK(gpu.throttle_reasons == std::vector<std::string>{"idle"});  // under its first name
  CHECK(!gpu.mig);
  CHECK(!gpu.memory_bus_bits);
  CHECK(gpu.nvlinks == 12);
  CHECK(!gpu.nvlink_gbytes_per_s);
  CHECK(!gpu.nvlinks_end_in_a_switch);
  for (const FoundPath& path : nvml.paths()) {
    CHECK(!path.nvlink);
    CHECK(path.pcie);
  }
}

TEST_CASE("NVML: a GPU that is lost stays in the list, and nothing is known of it") {
  const FakeNvml fake("lost");
  const executor::Nvml nvml(kNewNvml);
  REQUIRE(nvml.gpus() == 2);
  CHECK(nvml.gpu(0).name == "NVIDIA H200");
  CHECK(nvml.gpu(1).index == 1);
  CHECK(!nvml.gpu(1).name);
  CHECK(!nvml.gpu(1).total_bytes);
  CHECK(!nvml.paths().front().nvlink);
}

TEST_CASE("NVML: no library, a wrong one, a driver that is not loaded or of another version") {
  const executor::Nvml none("/nowhere/libnvidia-ml.so.1");
  CHECK(!none.driver().works);
  CHECK(none.gpus() == 0);
  CHECK(none.paths().empty());
  CHECK(none.driver().problem.find("there is no NVIDIA driver here") == 0);
  const executor::Nvml other("libm.so.6");
  CHECK(!other.driver().works);
  CHECK(other.driver().problem.find("nvmlInit_v2") != std::string::npos);
  const auto problem_of = [](const std::string& machine) {
    const FakeNvml fake(machine);
    const executor::Nvml nvml(kNewNvml);
    CHECK(!nvml.driver().works);
    CHECK(nvml.gpus() == 0);
    CHECK(nvml.driver().kernel_differs == (machine == "mismatch"));
    return nvml.driver().problem;
  };
  CHECK(problem_of("not-loaded") == "NVIDIA's driver is installed, but the kernel has not loaded it");
  CHECK(problem_of("mismatch") == "NVIDIA's driver in the kernel and its libraries have different versions");
}

TEST_CASE("NVML: MIG") {
  const FakeNvml fake("a100-mig");
  const executor::Nvml nvml(kNewNvml);
  CHECK(nvml.gpu(0).mig == false);
  CHECK(nvml.gpu(2).mig == true);
}
