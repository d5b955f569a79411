#pragma once

#include <array>
#include <cstdint>

// What of NVIDIA's management library (NVML) is called: names, values and layouts as nvml.h has them, checked against
// NVIDIA's Python binding nvidia-ml-py 13.615.71. The library comes with the driver, and its header with the toolkit,
// which a machine that runs zeroplan need not have.
namespace zeroplan::executor::nvml {

using Device = struct DeviceHandle*;  // opaque

using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kDriverNotLoaded = 9;
inline constexpr Result kLibraryMismatch = 18;  // the library and the kernel's driver have other versions

inline constexpr unsigned kDriverVersionChars = 80;
inline constexpr unsigned kNameChars = 96;
inline constexpr unsigned kUuidChars = 96;
inline constexpr unsigned kMostNvlinks = 36;

struct Memory {
  unsigned long long total, free, used;  // NOLINT(google-runtime-int): as the header has it
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;  // NOLINT(google-runtime-int): as the header has it
};
static_assert(sizeof(MemoryV2) == 40);
inline constexpr unsigned kMemoryV2 = sizeof(MemoryV2) | (2U << 24);

struct Pci {
  std::array<char, 16> bus_id_legacy;
  unsigned domain, bus, device, device_id, subsystem_id;
  std::array<char, 32> bus_id;
};
static_assert(sizeof(Pci) == 68);

enum class ClockType : int { sm = 1, memory = 2 };

inline constexpr int kGpuTemperature = 0;  // a sensor

// Of a process that computes on a GPU.
struct Process {
  unsigned pid;
  unsigned long long used;  // NOLINT(google-runtime-int): as the header has it. All bits set: not known
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(Process) == 24);

// A field that nvmlDeviceGetFieldValues fills in.
struct FieldValue {
  std::uint32_t field, scope;
  std::int64_t timestamp, latency_microseconds;
  int value_type;
  Result result;
  union {
    double real;
    unsigned whole;
    unsigned long long wide;  // NOLINT(google-runtime-int): as the header has it
  } value;
};
static_assert(sizeof(FieldValue) == 40);
inline constexpr std::uint32_t kNvlinkSpeedCommon = 90;   // MB/s, of the first links of older GPUs
inline constexpr std::uint32_t kNvlinkSpeedOfLink = 164;  // MB/s of the link that `scope` names
inline constexpr int kUnsignedInt = 1, kUnsignedLong = 2, kUnsignedLongLong = 3;  // value_type

inline constexpr int kRemoteIsSwitch = 2;
inline constexpr int kPeerOverNvlink = 2, kPeerStatusOk = 0;

struct TopologyLevel {
  int level;
  const char* words;
};
inline constexpr std::array<TopologyLevel, 6> kTopologyLevels{{{0, "one board"},
                                                               {10, "one PCIe switch"},
                                                               {20, "several PCIe switches"},
                                                               {30, "one host bridge"},
                                                               {40, "one NUMA node"},
                                                               {50, "the link between NUMA nodes"}}};

}  // namespace zeroplan::executor::nvml
