#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/units.hpp"

// What was found of the machine that the program runs on, as plain data: executor/machine reads it, reports and
// describe/machine/recognize say what it means. What nobody could read is absent: not known is never zero.
namespace zeroplan {

// Why a GPU's clocks are below their highest, by NVML's bits (nvml.h, nvmlClocksEventReasons).
struct ClockReason {
  std::uint64_t bit;
  std::string_view words;
};
inline constexpr std::array<ClockReason, 9> kClockReasons{{{0x1, "idle"},
                                                           {0x2, "application clocks are set"},
                                                           {0x4, "power cap"},
                                                           {0x8, "hardware slowdown"},
                                                           {0x10, "sync boost"},
                                                           {0x20, "software thermal slowdown"},
                                                           {0x40, "hardware thermal slowdown"},
                                                           {0x80, "hardware power brake"},
                                                           {0x100, "display clocks are set"}}};
// Clocks of a GPU that has nothing to do are no loss.
inline constexpr std::uint64_t kIdleReason = 0x1;

// A GPU, as NVML tells of it. Rates of links count one direction.
struct FoundGpu {
  std::int64_t index = 0;  // NVML's, which is the order of PCI addresses
  std::optional<std::string> name, uuid;
  std::optional<std::string> pci_address;  // as sysfs spells it, "0000:1b:00.0"
  std::optional<Bytes> total_bytes, used_bytes;
  std::optional<Bytes> reserved_bytes;  // by the driver; of total_bytes, and not of used_bytes
  std::optional<double> compute_capability;
  std::optional<double> power_limit_watts, power_watts;
  std::optional<std::int64_t> sm_clock_mhz, most_sm_clock_mhz, memory_clock_mhz, most_memory_clock_mhz;
  std::optional<std::int64_t> memory_bus_bits;
  // Why the clocks are below their highest, in words; empty: for no reason that the driver gives.
  std::optional<std::vector<std::string>> throttle_reasons;
  std::optional<bool> ecc, mig, persistence;
  std::optional<std::int64_t> nvlinks;                      // active ones
  std::optional<double> nvlink_gbytes_per_s;                // of one link, as it is signalled
  std::optional<bool> nvlinks_end_in_a_switch;              // absent where there is no active link
  std::optional<std::int64_t> pcie_generation, pcie_lanes;  // the most that this GPU and its slot have
};

// How one GPU reaches another.
struct FoundPath {
  std::int64_t first = 0, second = 0;  // indices, first < second
  std::optional<bool> nvlink;          // whether they reach each other's memory over NVLink
  std::optional<std::string> pcie;     // what their PCIe paths have in common: "one PCIe switch"
};

// NVIDIA's driver, as its library tells of it.
struct FoundDriver {
  bool works = false;
  std::string problem;                       // in a sentence where it does not
  std::optional<std::string> version;        // "550.54.15"
  std::optional<std::int64_t> cuda_version;  // the newest CUDA that it runs, as CUDA counts: 12040 is 12.4
  bool kernel_differs = false;  // the kernel runs another version of the driver than the libraries are of
};

// A network interface that is a device of its own, not a bridge or a container's end.
struct FoundNic {
  std::string name;                     // "mlx5_0" of RDMA devices, else the interface's: "eth0"
  std::vector<std::string> interfaces;  // of an RDMA device, those of the system
  std::string kind;                     // "InfiniBand", "RoCE", "RDMA", "Ethernet"
  std::optional<bool> active;
  std::optional<double> gbits_per_s;
  std::optional<std::string> pci_address;
  std::optional<std::string> pci_root;  // of the PCIe tree, "pci0000:80"
  std::vector<std::int64_t> gpus;       // indices of those under the same root
};

struct FoundHost {
  std::string processor;  // "AMD EPYC 7713 64-Core Processor"; empty: not known
  std::optional<std::int64_t> sockets, cores, numa_nodes;
  std::int64_t logical_cpus = 0;
  std::optional<Bytes> memory_bytes;
};

struct FoundMachine {
  FoundHost host;
  FoundDriver driver;
  std::vector<FoundGpu> gpus;
  std::vector<FoundPath> paths;  // of every pair
  std::vector<FoundNic> nics;
};

}  // namespace zeroplan
