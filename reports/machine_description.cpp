#include "reports/machine_description.hpp"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "planner/describe/machine/hardware_reader.hpp"
#include "planner/describe/machine/recognize.hpp"

namespace zeroplan::reports {
namespace {

constexpr std::string_view kNvml = "NVML on this machine";
constexpr std::string_view kSystem = "Linux on this machine";

Data figure(const Data& value, std::string_view source, const std::string& note = {}) {
  Data data = Data::map().set("value", value).set("source", source);
  if (!note.empty()) data.set("note", note);
  return data;
}

// A rate, to the thousandth.
Data rate_figure(double rate, std::string_view source, const std::string& note = {}) {
  constexpr double kThousandths = 1e3;
  return figure(std::round(rate * kThousandths) / kThousandths, source, note);
}

Data to_fill_in(std::string_view what) {
  return figure(Data(), fmt::format("not known to NVML: fill in {}", what));
}

// A name that a file may have: "NVIDIA H100 NVL" as "nvidia-h100-nvl".
std::string file_name(const std::string& title) {
  std::string name;
  for (const char c : title) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) {
      name += static_cast<char>(std::tolower(byte));
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  return name;
}

// NVIDIA's architectures by compute capability (CUDA C++ Programming Guide, Compute Capabilities), as the shipped files call
// them.
std::string_view architecture_of(double compute_capability) {
  struct From {
    double capability;
    std::string_view name;
  };
  constexpr std::array<From, 6> kNewestFirst{
      {{10.0, "Blackwell"}, {9.0, "Hopper"}, {8.9, "Ada"}, {8.0, "Ampere"}, {7.5, "Turing"}, {7.0, "Volta"}}};
  for (const From& from : kNewestFirst) {
    if (compute_capability > from.capability - 0.01) return from.name;
  }
  return "other";
}

// GB/s of a lane, one direction: transfers a second less the line code (PCI Express Base Specification 6.0, section 4.2).
std::optional<double> pcie_gbytes_per_s(const FoundGpu& gpu) {
  constexpr std::array<double, 6> kOfLane{
      0.25, 0.5, 8 * 128 / 130.0 / 8, 16 * 128 / 130.0 / 8, 32 * 128 / 130.0 / 8, 64 * 242 / 256.0 / 8};
  if (!gpu.pcie_generation || !gpu.pcie_lanes) return std::nullopt;
  const std::int64_t generation = *gpu.pcie_generation;
  if (generation < 1 || generation > static_cast<std::int64_t>(kOfLane.size())) return std::nullopt;
  return kOfLane[static_cast<std::size_t>(generation - 1)] * static_cast<double>(*gpu.pcie_lanes);
}

Data capacity_data(const FoundGpu& gpu) {
  Data data = Data::map().set("nvml_bytes", figure(gpu.total_bytes.value_or(0), kNvml));
  if (gpu.reserved_bytes) data.set("driver_reserved_bytes", figure(*gpu.reserved_bytes, kNvml));
  return data;
}

void set_memory_rate(const FoundGpu& gpu, Data& data) {
  if (!gpu.most_memory_clock_mhz || !gpu.memory_bus_bits) {
    data.set("memory_gbytes_per_s", to_fill_in("the data sheet's rate"));
    return;
  }
  constexpr double kTransfersOfClock = 2;
  constexpr double kBitsOfByte = 8;
  constexpr double kMegabytesOfGigabyte = 1e3;
  const double rate = static_cast<double>(*gpu.most_memory_clock_mhz) * kTransfersOfClock *
                      static_cast<double>(*gpu.memory_bus_bits) / kBitsOfByte / kMegabytesOfGigabyte;
  data.set("memory_gbytes_per_s",
           rate_figure(rate, kNvml, "the highest memory clock x 2 x the width of the bus"));
}

std::optional<double> nvlink_rate(const FoundGpu& gpu) {
  if (gpu.nvlinks == std::optional<std::int64_t>(0)) return 0;
  if (!gpu.nvlinks || !gpu.nvlink_gbytes_per_s) return std::nullopt;
  return static_cast<double>(*gpu.nvlinks) * *gpu.nvlink_gbytes_per_s;
}

void set_links(const FoundGpu& gpu, Data& data) {
  if (gpu.nvlinks) data.set("nvlink_links", figure(*gpu.nvlinks, kNvml));
  if (const auto rate = nvlink_rate(gpu)) {
    data.set("nvlink_gbytes_per_s", rate_figure(*rate, kNvml, "as the links are signalled"));
  }
  if (const auto rate = pcie_gbytes_per_s(gpu)) {
    data.set(
        "pcie_gbytes_per_s",
        rate_figure(*rate, kNvml, fmt::format("generation {} x{}", *gpu.pcie_generation, *gpu.pcie_lanes)));
  }
}

// The keys of a device after `kind` and `schema`, which a device inside a node does not have.
void set_device(const FoundGpu& gpu, Data& data) {
  const std::string title = gpu.name.value_or("GPU");
  data.set("name", file_name(title)).set("title", title);
  if (gpu.compute_capability) data.set("architecture", architecture_of(*gpu.compute_capability));
  data.set("capacity", capacity_data(gpu));
  if (gpu.compute_capability) data.set("compute_capability", figure(*gpu.compute_capability, kNvml));
  for (const std::string_view type : {"fp32", "fp16", "bf16"}) {
    data.set(fmt::format("peak_{}_tflops", type), to_fill_in("the data sheet's dense rate"));
  }
  set_memory_rate(gpu, data);
  set_links(gpu, data);
}

void set_network(const FoundMachine& machine, Data& data) {
  const describe::FoundNetwork network = describe::network_of(machine);
  if (network.nics == 0) return;
  data.set("nics", figure(network.nics, kSystem))
      .set("nic_gbits_per_s", figure(*network.gbits_per_s, kSystem));
}

}  // namespace

Data machine_description(const FoundMachine& machine) {
  const FoundGpu& gpu = machine.gpus.front();
  const auto count = static_cast<std::int64_t>(machine.gpus.size());
  Data data = Data::map();
  if (count == 1) {
    data.set("kind", "device").set("schema", "zeroplan.hardware/1");
    set_device(gpu, data);
    return data;
  }
  Data device;
  if (const auto preset = describe::device_preset_of(machine)) {
    device = *preset;
  } else {
    device = Data::map();
    set_device(gpu, device);
  }
  const describe::Fabric fabric = describe::fabric_of(machine).value_or(describe::Fabric::pcie);
  data.set("kind", "node")
      .set("name", fmt::format("{}-x-{}", count, file_name(gpu.name.value_or("GPU"))))
      .set("title", fmt::format("{} x {}", count, gpu.name.value_or("GPU")))
      .set("schema", "zeroplan.hardware/1")
      .set("devices", figure(count, kNvml))
      .set("fabric", describe::fabric_names()[static_cast<std::size_t>(fabric)]);
  const auto link = fabric == describe::Fabric::pcie ? pcie_gbytes_per_s(gpu) : nvlink_rate(gpu);
  if (link) data.set("link_gbytes_per_s_per_device", rate_figure(*link, kNvml));
  set_network(machine, data);
  if (machine.host.memory_bytes) data.set("host_memory_bytes", figure(*machine.host.memory_bytes, kSystem));
  return data.set("device", std::move(device));
}

}  // namespace zeroplan::reports
