#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/found_machine.hpp"

namespace zeroplan::executor {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

struct NvmlLibrary;

// What of a GPU changes while it works.
struct GpuNow {
  std::optional<std::int64_t> sm_clock_mhz, memory_clock_mhz, temperature_celsius;
  std::optional<double> power_watts;
  std::optional<std::uint64_t> clock_reasons;  // bits of kClockReasons, and others
};

// NVIDIA's management library, opened while the program runs; no CUDA context is made and no memory of a GPU taken.
// Whatever the library lacks, refuses or does not support is absent from what is found. Nothing here throws for it.
class Nvml {
 public:
  explicit Nvml(const std::string& library = kNvmlLibrary);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  const FoundDriver& driver() const;
  std::int64_t gpus() const;  // 0 where the driver does not work

  // Requires 0 <= index < gpus(). Clocks, power and used memory are those of now.
  FoundGpu gpu(std::int64_t index) const;
  // The GPU at an address of the PCI bus, as sysfs spells it.
  std::optional<std::int64_t> index_at(const std::string& pci_address) const;
  GpuNow now(std::int64_t index) const;
  Bytes used_bytes(std::int64_t index) const;  // by whoever; 0 where it is not known
  // Of a process that computes there; 0 where the driver does not list it or does not say. Its number is that of the host:
  // in a container with process numbers of its own it is another process, or none.
  Bytes used_by_process(std::int64_t index, std::int64_t process) const;
  // Of every pair.
  std::vector<FoundPath> paths() const;

 private:
  std::unique_ptr<NvmlLibrary> library_;
};

}  // namespace zeroplan::executor
