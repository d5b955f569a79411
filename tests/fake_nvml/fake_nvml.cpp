// A library that answers as NVIDIA's management library does, of made-up machines: ZEROPLAN_FAKE_NVML names one. Built twice:
// with FAKE_NVML_OLD it lacks what drivers before 450 lack. Declarations are this file's own, so that what zeroplan declares is
// held against a second reading of the interface (nvml.h, as NVIDIA's Python binding nvidia-ml-py 13.615.71 has it).
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

// NOLINTBEGIN(google-runtime-int,readability-identifier-naming): names and types are the interface's
namespace {

[[maybe_unused]] constexpr int kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3, kDriverNotLoaded = 9,
                               kGpuIsLost = 15, kLibraryMismatch = 18, kVersionMismatch = 25;
constexpr unsigned long long kMiB = 1ULL << 20;

struct Gpu {
  const char* name;
  unsigned long long total, reserved, used;
  int major, minor;
  unsigned power_limit, power;  // mW
  unsigned sm_clock, most_sm_clock, memory_clock, most_memory_clock, bus_bits;
  unsigned long long reasons;
  int mig;  // -1: cannot be divided
  unsigned persistence;
  unsigned links, link_speed;  // of each, MB/s
  int remote;                  // at the other end of a link: 0 a GPU, 2 a switch
  unsigned pcie_generation;
};

constexpr Gpu kH200{"NVIDIA H200", 143771 * kMiB, 622 * kMiB, 0, 9,  0, 700000, 75500, 345, 1980,
                    3201,          3201,          6144,       1, -1, 1, 18,     26562, 2,   5};
constexpr Gpu kV100{"Tesla V100-SXM2-16GB",
                    16160 * kMiB,
                    0,
                    4 * kMiB,
                    7,
                    0,
                    300000,
                    43000,
                    135,
                    1530,
                    877,
                    877,
                    4096,
                    1,
                    -1,
                    1,
                    6,
                    25781,
                    0,
                    3};
constexpr Gpu kA100Pcie{"NVIDIA A100 80GB PCIe",
                        81920 * kMiB,
                        636 * kMiB,
                        0,
                        8,
                        0,
                        300000,
                        44000,
                        210,
                        1410,
                        1512,
                        1512,
                        5120,
                        1,
                        0,
                        1,
                        12,
                        25000,
                        0,
                        4};

struct Machine {
  std::vector<Gpu> gpus;
  int cuda = 12080;
  int init = kSuccess;
  int lost = -1;                         // this one has no handle
  unsigned long long process_bytes = 0;  // of this process on each GPU; 0: nobody computes there
  bool (*linked)(int, int) = [](int, int) { return true; };
};

// The cube mesh of a DGX-1: two rings of four, with their diagonals, and an edge between each pair of opposite corners.
bool cube_mesh(int a, int b) { return a / 4 == b / 4 || a % 4 == b % 4; }
bool bridged_pairs(int a, int b) { return a / 2 == b / 2; }

Machine made(const std::string& name) {
  Machine machine;
  if (name == "h200") machine.gpus.assign(8, kH200);
  if (name == "one-h200") machine.gpus.assign(1, kH200);
  if (name == "v100") {
    machine.gpus.assign(8, kV100);
    machine.linked = cube_mesh;
    machine.cuda = 11080;
  }
  if (name == "a100-pcie" || name == "a100-mig") {
    machine.gpus.assign(4, kA100Pcie);
    machine.linked = bridged_pairs;
    if (name == "a100-mig") machine.gpus[2].mig = 1;
  }
  if (name == "h100-nvl") {  // no shipped description is of this part
    Gpu gpu = kH200;
    gpu.name = "NVIDIA H100 NVL";
    gpu.total = 95830 * kMiB;
    machine.gpus.assign(2, gpu);
    for (Gpu& one : machine.gpus) one.remote = 0;
  }
  if (name == "throttled") {
    machine.gpus.assign(2, kH200);
    machine.gpus[1].reasons = 0x4 | 0x40 | 0x8000;
    machine.gpus[1].persistence = 0;
  }
  if (name == "busy") {  // as under load: near its power cap, and with this process on the first GPU
    machine.gpus.assign(8, kH200);
    for (Gpu& gpu : machine.gpus) {
      gpu.used = 5000 * kMiB;
      gpu.sm_clock = 1755;
      gpu.power = 690000;
      gpu.reasons = 0x4;
    }
    machine.process_bytes = 612 * kMiB;
  }
  if (name == "lost") {
    machine.gpus.assign(2, kH200);
    machine.lost = 1;
  }
  if (name == "old-cuda") {
    machine.gpus.assign(1, kV100);
    machine.cuda = 10020;
  }
  if (name == "not-loaded") machine.init = kDriverNotLoaded;
  if (name == "mismatch") machine.init = kLibraryMismatch;
  return machine;
}

Machine& machine() {
  static Machine now;
  return now;
}

// Handles point at the GPUs.
using Handle = const Gpu*;
const Gpu& gpu_of(Handle handle) { return *handle; }
int index_of(Handle handle) { return static_cast<int>(handle - machine().gpus.data()); }

int write(char* text, unsigned size, const std::string& value) {
  if (value.size() >= size) return 7;  // insufficient size
  std::memcpy(text, value.c_str(), value.size() + 1);
  return kSuccess;
}

int put(unsigned* where, unsigned value) {
  *where = value;
  return kSuccess;
}

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
struct Memory1 {
  unsigned long long total, free, used;
};
struct Memory2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Field {
  unsigned id, scope;
  long long timestamp, latency;
  int type, result;
  unsigned long long value;
};

}  // namespace

extern "C" {

int nvmlInit_v2() {
  const char* name = std::getenv("ZEROPLAN_FAKE_NVML");
  machine() = made(name == nullptr ? "" : name);
  return machine().init;
}
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int result) {
  return result == kDriverNotLoaded ? "Driver Not Loaded" : "Unknown";
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) { return write(text, size, "570.86.15"); }
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = machine().cuda;
  return kSuccess;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  return put(count, static_cast<unsigned>(machine().gpus.size()));
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle* handle) {
  if (index >= machine().gpus.size()) return kInvalidArgument;
  if (static_cast<int>(index) == machine().lost) return kGpuIsLost;
  *handle = &machine().gpus[index];
  return kSuccess;
}
int nvmlDeviceGetName(Handle handle, char* text, unsigned size) {
  return write(text, size, gpu_of(handle).name);
}
int nvmlDeviceGetUUID(Handle handle, char* text, unsigned size) {
  return write(text, size, "GPU-00000000-0000-0000-0000-00000000000" + std::to_string(index_of(handle)));
}
int nvmlDeviceGetPciInfo_v3(Handle handle, PciInfo* info) {
  std::memset(info, 0, sizeof *info);
  info->bus = 0x1a + static_cast<unsigned>(index_of(handle));
  std::snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "0000:%02X:00.0", info->bus);
  std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo(Handle handle, Memory1* memory) {
  const Gpu& gpu = gpu_of(handle);
  const auto used = gpu.used + gpu.reserved;
  *memory = {gpu.total, gpu.total - used, used};
  return kSuccess;
}
int nvmlDeviceGetCudaComputeCapability(Handle handle, int* major, int* minor) {
  *major = gpu_of(handle).major;
  *minor = gpu_of(handle).minor;
  return kSuccess;
}
int nvmlDeviceGetEnforcedPowerLimit(Handle handle, unsigned* limit) {
  return put(limit, gpu_of(handle).power_limit);
}
int nvmlDeviceGetPowerUsage(Handle handle, unsigned* power) { return put(power, gpu_of(handle).power); }
int nvmlDeviceGetTemperature(Handle, int sensor, unsigned* degrees) {
  return sensor == 0 ? put(degrees, 64) : kInvalidArgument;
}
int nvmlDeviceGetClockInfo(Handle handle, int type, unsigned* clock) {
  return put(clock, type == 1 ? gpu_of(handle).sm_clock : gpu_of(handle).memory_clock);
}
int nvmlDeviceGetMaxClockInfo(Handle handle, int type, unsigned* clock) {
  return put(clock, type == 1 ? gpu_of(handle).most_sm_clock : gpu_of(handle).most_memory_clock);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Handle handle, unsigned long long* reasons) {
  *reasons = gpu_of(handle).reasons;
  return kSuccess;
}
int nvmlDeviceGetEccMode(Handle, unsigned* now, unsigned* pending) {
  *now = *pending = 1;
  return kSuccess;
}
int nvmlDeviceGetPersistenceMode(Handle handle, unsigned* mode) {
  return put(mode, gpu_of(handle).persistence);
}
int nvmlDeviceGetNvLinkState(Handle handle, unsigned link, unsigned* active) {
  // The last link of the interface's count is refused; those between are there and not active.
  if (link >= 18) return kInvalidArgument;
  return put(active, link < gpu_of(handle).links ? 1 : 0);
}
int nvmlDeviceGetTopologyCommonAncestor(Handle a, Handle b, int* level) {
  const bool one_switch = index_of(a) / 2 == index_of(b) / 2;
  const bool one_socket = index_of(a) / 4 == index_of(b) / 4;
  *level = one_switch ? 10 : one_socket ? 40 : 50;
  return kSuccess;
}
int nvmlDeviceGetMaxPcieLinkGeneration(Handle handle, unsigned* generation) {
  return put(generation, gpu_of(handle).pcie_generation);
}
int nvmlDeviceGetMaxPcieLinkWidth(Handle, unsigned* width) { return put(width, 16); }

#ifndef FAKE_NVML_OLD
int nvmlDeviceGetMemoryInfo_v2(Handle handle, Memory2* memory) {
  if (memory->version != 0x02000028) return kVersionMismatch;
  const Gpu& gpu = gpu_of(handle);
  memory->total = gpu.total;
  memory->reserved = gpu.reserved;
  memory->used = gpu.used;
  memory->free = gpu.total - gpu.used - gpu.reserved;
  return kSuccess;
}
int nvmlDeviceGetComputeRunningProcesses_v3(Handle, unsigned* count, ProcessInfo* processes) {
  const unsigned room = *count;
  *count = machine().process_bytes > 0 ? 2 : 0;
  if (*count == 0) return kSuccess;
  if (room < *count) return 7;      // insufficient size
  processes[0] = {1, ~0ULL, 0, 0};  // of another user: not told
  processes[1] = {static_cast<unsigned>(getpid()), machine().process_bytes, 0, 0};
  return kSuccess;
}
int nvmlDeviceGetCurrentClocksEventReasons(Handle handle, unsigned long long* reasons) {
  *reasons = gpu_of(handle).reasons;
  return kSuccess;
}
int nvmlDeviceGetMemoryBusWidth(Handle handle, unsigned* bits) { return put(bits, gpu_of(handle).bus_bits); }
int nvmlDeviceGetMigMode(Handle handle, unsigned* now, unsigned* pending) {
  if (gpu_of(handle).mig < 0) return kNotSupported;
  *now = *pending = static_cast<unsigned>(gpu_of(handle).mig);
  return kSuccess;
}
int nvmlDeviceGetFieldValues(Handle handle, int count, Field* fields) {
  for (int i = 0; i < count; ++i) {
    const bool is_speed = fields[i].id == 164 && fields[i].scope < gpu_of(handle).links;
    fields[i].result = is_speed ? kSuccess : kNotSupported;
    fields[i].type = 1;
    fields[i].value = gpu_of(handle).link_speed;
  }
  return kSuccess;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(Handle handle, unsigned, int* type) {
  *type = gpu_of(handle).remote;
  return kSuccess;
}
int nvmlDeviceGetP2PStatus(Handle a, Handle b, int capability, int* status) {
  if (capability != 2) return kInvalidArgument;
  *status = machine().linked(index_of(a), index_of(b)) ? 0 : 5;
  return kSuccess;
}
#endif

}  // extern "C"
// NOLINTEND(google-runtime-int,readability-identifier-naming)
