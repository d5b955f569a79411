#include "executor/machine/nvml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "executor/machine/nvml_interface.hpp"
#include "executor/machine/shared_library.hpp"

namespace zeroplan::executor {

using nvml::Result;

struct NvmlLibrary {
  explicit NvmlLibrary(const std::string& name) : shared(name) {}

  SharedLibrary shared;
  FoundDriver driver;
  bool initialised = false;
  std::vector<nvml::Device> devices;

  // Calls `symbol` where there is such a function; whether it did what was asked.
  template <class... Arguments>
  bool call(const char* symbol, Arguments... arguments) const {
    auto* const function = shared.find<Result(Arguments...)>(symbol);
    return function != nullptr && function(arguments...) == nvml::kSuccess;
  }

  // What a function writes to its last argument.
  template <class Value, class... Arguments>
  std::optional<Value> get(const char* symbol, Arguments... arguments) const {
    Value value{};
    if (!call(symbol, arguments..., &value)) return std::nullopt;
    return value;
  }

  template <unsigned kChars, class... Arguments>
  std::optional<std::string> text(const char* symbol, Arguments... arguments) const {
    std::array<char, kChars> value{};
    if (!call(symbol, arguments..., value.data(), kChars)) return std::nullopt;
    value.back() = '\0';
    return std::string(value.data());
  }

  std::string words_of(Result result) const {
    auto* const words = shared.find<const char*(Result)>("nvmlErrorString");
    const char* text = words == nullptr ? nullptr : words(result);
    return text == nullptr ? fmt::format("error {}", result) : text;
  }

  void initialise() {
    auto* const init = shared.find<Result()>("nvmlInit_v2");
    if (init == nullptr) {
      driver.problem = "NVIDIA's management library is too old: it has no nvmlInit_v2";
      return;
    }
    const Result result = init();
    if (result != nvml::kSuccess) {
      driver.problem = problem_of(result);
      driver.kernel_differs = result == nvml::kLibraryMismatch;
      return;
    }
    initialised = true;
    driver.version = text<nvml::kDriverVersionChars>("nvmlSystemGetDriverVersion");
    driver.cuda_version = get<int>("nvmlSystemGetCudaDriverVersion_v2");
    const std::optional<unsigned> count = get<unsigned>("nvmlDeviceGetCount_v2");
    if (!count) {
      driver.problem = "NVIDIA's management library does not say how many GPUs there are";
      return;
    }
    driver.works = true;
    for (unsigned i = 0; i < *count; ++i) {
      // A GPU that fell off its bus has no handle; it stays in the list as one of which nothing is known.
      devices.push_back(get<nvml::Device>("nvmlDeviceGetHandleByIndex_v2", i).value_or(nullptr));
    }
  }

  std::string problem_of(Result result) const {
    if (result == nvml::kDriverNotLoaded) {
      return "NVIDIA's driver is installed, but the kernel has not loaded it";
    }
    if (result == nvml::kLibraryMismatch) {
      return "NVIDIA's driver in the kernel and its libraries have different versions";
    }
    return fmt::format("NVIDIA's management library does not start: {}", words_of(result));
  }
};

namespace {

using nvml::Device;

template <class To, class From>
std::optional<To> as(const std::optional<From>& value) {
  return value ? std::optional<To>(static_cast<To>(*value)) : std::nullopt;
}

std::optional<double> watts(const std::optional<unsigned>& milliwatts) {
  return milliwatts ? std::optional(*milliwatts / 1e3) : std::nullopt;
}

// "00000000:1B:00.0", or with four digits in front, as sysfs spells it: "0000:1b:00.0".
std::string sysfs_address(std::string address) {
  const std::size_t colon = address.find(':');
  if (colon != std::string::npos && colon > 4) address.erase(0, colon - 4);
  std::transform(address.begin(), address.end(), address.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return address;
}

std::vector<std::string> words_of_reasons(std::uint64_t bits) {
  std::vector<std::string> words;
  for (const ClockReason& reason : kClockReasons) {
    if ((bits & reason.bit) == 0) continue;
    words.emplace_back(reason.words);
    bits &= ~reason.bit;
  }
  if (bits != 0) words.push_back(fmt::format("reason {:#x}", bits));
  return words;
}

// MB/s of a link, where the driver knows this field.
std::optional<double> link_speed(const NvmlLibrary& library, Device device, std::uint32_t field,
                                 unsigned link) {
  nvml::FieldValue value{};
  value.field = field;
  value.scope = link;
  if (!library.call("nvmlDeviceGetFieldValues", device, 1, &value) || value.result != nvml::kSuccess) {
    return std::nullopt;
  }
  if (value.value_type == nvml::kUnsignedInt) return value.value.whole;
  const bool is_wide = value.value_type == nvml::kUnsignedLong || value.value_type == nvml::kUnsignedLongLong;
  return is_wide ? std::optional(static_cast<double>(value.value.wide)) : std::nullopt;
}

void read_nvlinks(const NvmlLibrary& library, Device device, FoundGpu& gpu) {
  std::int64_t active = 0;
  std::optional<unsigned> first;
  for (unsigned link = 0; link < nvml::kMostNvlinks; ++link) {
    const auto state = library.get<unsigned>("nvmlDeviceGetNvLinkState", device, link);
    // A GPU without NVLink refuses the first; one with fewer links than the most refuses what is behind its last.
    if (!state) continue;
    gpu.nvlinks = active += *state == 1 ? 1 : 0;
    if (*state == 1 && !first) first = link;
  }
  if (!first) return;
  auto speed = link_speed(library, device, nvml::kNvlinkSpeedOfLink, *first);
  if (!speed) speed = link_speed(library, device, nvml::kNvlinkSpeedCommon, 0);
  if (speed && *speed > 0) gpu.nvlink_gbytes_per_s = *speed / 1e3;
  const auto remote = library.get<int>("nvmlDeviceGetNvLinkRemoteDeviceType", device, *first);
  if (remote) gpu.nvlinks_end_in_a_switch = *remote == nvml::kRemoteIsSwitch;
}

void read_memory(const NvmlLibrary& library, Device device, FoundGpu& gpu) {
  nvml::MemoryV2 second{};
  second.version = nvml::kMemoryV2;
  if (library.call("nvmlDeviceGetMemoryInfo_v2", device, &second)) {
    gpu.total_bytes = static_cast<Bytes>(second.total);
    gpu.used_bytes = static_cast<Bytes>(second.used);
    gpu.reserved_bytes = static_cast<Bytes>(second.reserved);
    return;
  }
  // The first form counts what the driver reserves as used.
  if (const auto first = library.get<nvml::Memory>("nvmlDeviceGetMemoryInfo", device)) {
    gpu.total_bytes = static_cast<Bytes>(first->total);
    gpu.used_bytes = static_cast<Bytes>(first->used);
  }
}

std::optional<std::int64_t> clock_of(const NvmlLibrary& library, const char* symbol, Device device,
                                     nvml::ClockType type) {
  return as<std::int64_t>(library.get<unsigned>(symbol, device, static_cast<int>(type)));
}

std::optional<std::uint64_t> clock_reasons(const NvmlLibrary& library, Device device) {
  using Bits = unsigned long long;  // NOLINT(google-runtime-int): as the header has it
  auto reasons = library.get<Bits>("nvmlDeviceGetCurrentClocksEventReasons", device);
  // Drivers before 535 have it under its first name only.
  if (!reasons) reasons = library.get<Bits>("nvmlDeviceGetCurrentClocksThrottleReasons", device);
  return as<std::uint64_t>(reasons);
}

void read_clocks(const NvmlLibrary& library, Device device, FoundGpu& gpu) {
  gpu.sm_clock_mhz = clock_of(library, "nvmlDeviceGetClockInfo", device, nvml::ClockType::sm);
  gpu.memory_clock_mhz = clock_of(library, "nvmlDeviceGetClockInfo", device, nvml::ClockType::memory);
  gpu.most_sm_clock_mhz = clock_of(library, "nvmlDeviceGetMaxClockInfo", device, nvml::ClockType::sm);
  gpu.most_memory_clock_mhz = clock_of(library, "nvmlDeviceGetMaxClockInfo", device, nvml::ClockType::memory);
  if (const auto reasons = clock_reasons(library, device)) gpu.throttle_reasons = words_of_reasons(*reasons);
}

std::optional<std::string> address_of(const NvmlLibrary& library, Device device) {
  auto pci = library.get<nvml::Pci>("nvmlDeviceGetPciInfo_v3", device);
  if (!pci) return std::nullopt;
  pci->bus_id.back() = '\0';
  return sysfs_address(pci->bus_id.data());
}

FoundGpu read_gpu(const NvmlLibrary& library, Device device) {
  FoundGpu gpu;
  gpu.name = library.text<nvml::kNameChars>("nvmlDeviceGetName", device);
  gpu.uuid = library.text<nvml::kUuidChars>("nvmlDeviceGetUUID", device);
  gpu.pci_address = address_of(library, device);
  read_memory(library, device, gpu);
  int major = 0;
  int minor = 0;
  if (library.call("nvmlDeviceGetCudaComputeCapability", device, &major, &minor)) {
    gpu.compute_capability = major + minor / 10.0;
  }
  gpu.power_limit_watts = watts(library.get<unsigned>("nvmlDeviceGetEnforcedPowerLimit", device));
  gpu.power_watts = watts(library.get<unsigned>("nvmlDeviceGetPowerUsage", device));
  read_clocks(library, device, gpu);
  gpu.memory_bus_bits = as<std::int64_t>(library.get<unsigned>("nvmlDeviceGetMemoryBusWidth", device));
  // Of the two modes, the first is that of now and the second that after the next reset.
  unsigned now = 0;
  unsigned pending = 0;
  if (library.call("nvmlDeviceGetEccMode", device, &now, &pending)) gpu.ecc = now == 1;
  if (library.call("nvmlDeviceGetMigMode", device, &now, &pending)) gpu.mig = now == 1;
  gpu.persistence = as<bool>(library.get<unsigned>("nvmlDeviceGetPersistenceMode", device));
  read_nvlinks(library, device, gpu);
  gpu.pcie_generation = as<std::int64_t>(library.get<unsigned>("nvmlDeviceGetMaxPcieLinkGeneration", device));
  gpu.pcie_lanes = as<std::int64_t>(library.get<unsigned>("nvmlDeviceGetMaxPcieLinkWidth", device));
  return gpu;
}

std::optional<std::string> words_of_level(const std::optional<int>& level) {
  if (!level) return std::nullopt;
  for (const nvml::TopologyLevel& known : nvml::kTopologyLevels) {
    if (known.level == *level) return known.words;
  }
  return std::nullopt;
}

}  // namespace

Nvml::Nvml(const std::string& library) : library_(std::make_unique<NvmlLibrary>(library)) {
  if (library_->shared.opened()) {
    library_->initialise();
  } else {
    library_->driver.problem = fmt::format(
        "there is no NVIDIA driver here: its library cannot be opened ({})", library_->shared.problem());
  }
}

Nvml::~Nvml() {
  if (library_->initialised) (void)library_->call("nvmlShutdown");
}

const FoundDriver& Nvml::driver() const { return library_->driver; }

std::int64_t Nvml::gpus() const { return static_cast<std::int64_t>(library_->devices.size()); }

FoundGpu Nvml::gpu(std::int64_t index) const {
  Device device = library_->devices.at(static_cast<std::size_t>(index));
  FoundGpu gpu;
  if (device != nullptr) gpu = read_gpu(*library_, device);
  gpu.index = index;
  return gpu;
}

std::optional<std::int64_t> Nvml::index_at(const std::string& pci_address) const {
  for (std::size_t i = 0; i < library_->devices.size(); ++i) {
    Device device = library_->devices[i];
    if (device != nullptr && address_of(*library_, device) == pci_address)
      return static_cast<std::int64_t>(i);
  }
  return std::nullopt;
}

GpuNow Nvml::now(std::int64_t index) const {
  Device device = library_->devices.at(static_cast<std::size_t>(index));
  if (device == nullptr) return {};
  GpuNow now;
  now.sm_clock_mhz = clock_of(*library_, "nvmlDeviceGetClockInfo", device, nvml::ClockType::sm);
  now.memory_clock_mhz = clock_of(*library_, "nvmlDeviceGetClockInfo", device, nvml::ClockType::memory);
  now.temperature_celsius =
      as<std::int64_t>(library_->get<unsigned>("nvmlDeviceGetTemperature", device, nvml::kGpuTemperature));
  now.power_watts = watts(library_->get<unsigned>("nvmlDeviceGetPowerUsage", device));
  now.clock_reasons = clock_reasons(*library_, device);
  return now;
}

Bytes Nvml::used_bytes(std::int64_t index) const {
  Device device = library_->devices.at(static_cast<std::size_t>(index));
  if (device == nullptr) return 0;
  FoundGpu gpu;
  read_memory(*library_, device, gpu);
  return gpu.used_bytes.value_or(0);
}

Bytes Nvml::used_by_process(std::int64_t index, std::int64_t process) const {
  constexpr unsigned kMostProcesses = 1024;
  Device device = library_->devices.at(static_cast<std::size_t>(index));
  if (device == nullptr) return 0;
  std::vector<nvml::Process> processes(kMostProcesses);
  for (const char* symbol :
       {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"}) {
    unsigned count = kMostProcesses;
    if (!library_->call(symbol, device, &count, processes.data())) continue;
    processes.resize(std::min(count, kMostProcesses));
    for (const nvml::Process& one : processes) {
      if (one.pid == process && static_cast<Bytes>(one.used) > 0) return static_cast<Bytes>(one.used);
    }
    return 0;
  }
  return 0;
}

std::vector<FoundPath> Nvml::paths() const {
  std::vector<FoundPath> paths;
  const std::vector<Device>& devices = library_->devices;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    for (std::size_t j = i + 1; j < devices.size(); ++j) {
      FoundPath path;
      path.first = static_cast<std::int64_t>(i);
      path.second = static_cast<std::int64_t>(j);
      if (devices[i] != nullptr && devices[j] != nullptr) {
        const auto status =
            library_->get<int>("nvmlDeviceGetP2PStatus", devices[i], devices[j], nvml::kPeerOverNvlink);
        if (status) path.nvlink = *status == nvml::kPeerStatusOk;
        path.pcie =
            words_of_level(library_->get<int>("nvmlDeviceGetTopologyCommonAncestor", devices[i], devices[j]));
      }
      paths.push_back(std::move(path));
    }
  }
  return paths;
}

}  // namespace zeroplan::executor
