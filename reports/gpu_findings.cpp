#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "reports/detected_report.hpp"
#include "reports/finding_lists.hpp"

namespace zeroplan::reports {
namespace {

using enum FindingState;

constexpr double kLeastCapability = 7.0;  // V100
// The oldest toolkit is 11.8, which drivers for any CUDA 11 run (CUDA Compatibility, minor version compatibility).
constexpr std::int64_t kLeastCuda = 11000;
constexpr std::int64_t kLeastNccl = 21800;  // communicators by split

std::string indices_of(const std::vector<std::int64_t>& indices) {
  return fmt::format("GPU {}", fmt::join(indices, ", "));
}

// The indices of the GPUs of which `is_so` holds.
template <class Predicate>
std::vector<std::int64_t> those(const FoundSystem& system, Predicate is_so) {
  std::vector<std::int64_t> indices;
  for (const FoundGpu& gpu : system.machine.gpus) {
    if (is_so(gpu)) indices.push_back(gpu.index);
  }
  return indices;
}

Finding driver_finding(const FoundSystem& system) {
  const FoundDriver& driver = system.machine.driver;
  Finding finding{.key = "driver", .what = "NVIDIA driver"};
  finding.why = "GPUs are reached through it";
  if (!driver.works) {
    finding.state = missing;
    finding.found = driver.problem;
    // An update leaves the kernel's module as it was until the next start.
    finding.mend = driver.kernel_differs ? "reboot" : "apt-get install nvidia-driver && modprobe nvidia";
    return finding;
  }
  finding.found = driver_text(driver);
  if (driver.cuda_version && *driver.cuda_version < kLeastCuda) {
    finding.state = missing;
    finding.why = fmt::format("zeroplan needs one for CUDA {} or later", cuda_version_text(kLeastCuda));
    finding.mend = "apt-get install --only-upgrade nvidia-driver";
  }
  return finding;
}

Finding gpus_finding(const FoundSystem& system) {
  Finding finding{.key = "gpus", .what = "GPUs"};
  finding.why = "a run on GPUs needs one for each rank";
  const std::vector<FoundGpu>& gpus = system.machine.gpus;
  if (gpus.empty()) {
    finding.state = missing;
    finding.found = "the driver sees no GPU";
    finding.mend = "docker run --gpus all (of a container; else look at lspci -d 10de:)";
    return finding;
  }
  finding.found = fmt::format("{} x {}", gpus.size(), gpus.front().name.value_or("a GPU without a name"));
  const auto lost = those(system, [](const FoundGpu& gpu) { return !gpu.name && !gpu.total_bytes; });
  const auto old = those(system, [](const FoundGpu& gpu) {
    return gpu.compute_capability && *gpu.compute_capability < kLeastCapability;
  });
  if (!lost.empty()) {
    finding.state = lost.size() == gpus.size() ? missing : warning;
    finding.found += fmt::format("; the driver says nothing of {}", indices_of(lost));
    finding.why = "a GPU that fell off its bus ends every run that takes it";
    finding.mend = fmt::format("nvidia-smi --gpu-reset -i {}", fmt::join(lost, ","));
  } else if (!old.empty()) {
    finding.state = old.size() == gpus.size() ? missing : warning;
    finding.found += fmt::format("; {} is older than sm_70", indices_of(old));
    finding.why = "zeroplan's kernels are built for V100 and later";
    const auto others = those(system, [](const FoundGpu& gpu) {
      return gpu.compute_capability.value_or(kLeastCapability) >= kLeastCapability;
    });
    finding.mend = others.empty() ? "zeroplan validate gpt2 --device cpu"
                                  : fmt::format("export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={}",
                                                fmt::join(others, ","));
  }
  return finding;
}

Finding mig_finding(const FoundSystem& system) {
  Finding finding{.key = "mig", .what = "MIG"};
  finding.why =
      "a rank gets an instance with a part of the memory, and NCCL cannot join instances of one GPU";
  const auto divided = those(system, [](const FoundGpu& gpu) { return gpu.mig.value_or(false); });
  const auto known = those(system, [](const FoundGpu& gpu) { return gpu.mig.has_value(); });
  finding.found = known.empty() ? "the driver knows of none" : "no GPU is divided";
  if (divided.empty()) return finding;
  finding.state = warning;
  finding.found = indices_of(divided) + " is divided into instances";
  finding.mend = fmt::format("nvidia-smi -i {} -mig 0", fmt::join(divided, ","));
  return finding;
}

// Idle is no reason to worry, and clocks that somebody set are what measurements want.
bool slows(const std::string& reason) {
  return reason != "idle" && reason != "application clocks are set" && reason != "display clocks are set";
}

Finding clocks_finding(const FoundSystem& system) {
  Finding finding{.key = "gpu_clocks", .what = "GPU clocks"};
  finding.why = "times that were measured at other clocks do not compare";
  std::vector<std::string> held;
  for (const FoundGpu& gpu : system.machine.gpus) {
    for (const std::string& reason : gpu.throttle_reasons.value_or(std::vector<std::string>{})) {
      if (slows(reason)) held.push_back(fmt::format("GPU {}: {}", gpu.index, reason));
    }
  }
  const FoundGpu& first = system.machine.gpus.front();
  const std::int64_t most = first.most_sm_clock_mhz.value_or(0);
  if (held.empty()) {
    finding.found = first.throttle_reasons ? "nothing holds them back" : "not known";
    if (first.sm_clock_mhz && most > 0) {
      finding.found += fmt::format("; GPU 0 is at {} of {} MHz", *first.sm_clock_mhz, most);
    }
    return finding;
  }
  finding.state = warning;
  finding.found = fmt::format("{}", fmt::join(held, "; "));
  // Locked below their highest, clocks no longer vary with power and temperature.
  finding.mend =
      most > 0 ? fmt::format("nvidia-smi -lgc {}", most * 3 / 4) : "nvidia-smi -q -d CLOCK,PERFORMANCE";
  return finding;
}

Finding persistence_finding(const FoundSystem& system) {
  Finding finding{.key = "persistence", .what = "persistence mode"};
  finding.why = "the driver starts the GPU anew for each run, which takes seconds and forgets locked clocks";
  const auto off = those(system, [](const FoundGpu& gpu) { return gpu.persistence == std::optional(false); });
  const auto known = those(system, [](const FoundGpu& gpu) { return gpu.persistence.has_value(); });
  finding.found = known.empty() ? "not known" : "no GPU is unloaded between runs";
  if (off.empty()) return finding;
  finding.state = warning;
  finding.found = "off on " + indices_of(off);
  finding.mend = "nvidia-smi -pm 1";
  return finding;
}

Finding module_finding(const FoundModule& module, const std::string& name, const std::string& why) {
  Finding finding{.key = name + "_module", .what = fmt::format("zeroplan's {} module", name)};
  finding.why = why;
  finding.found = fmt::format("zeroplan_{}.so opens", name);
  if (module.works) return finding;
  finding.state = missing;
  finding.found = module.problem;
  finding.mend = "cmake --preset release -DZEROPLAN_CUDA=ON && ninja -C build/release";
  return finding;
}

// 13.0.88 as CUDA's runtime counts is 13000; cuBLASLt's 130101 is 13.1.1, and NCCL's 22809 is 2.28.9.
std::string version_text(std::int64_t version) {
  constexpr std::int64_t kMajor = 10000, kMinor = 100;
  return fmt::format("{}.{}.{}", version / kMajor, version % kMajor / kMinor, version % kMinor);
}

Finding library_finding(const FoundLibrary& library, std::string key, std::string what) {
  Finding finding{.key = std::move(key), .what = std::move(what)};
  if (!library.file.empty()) {
    finding.found = library.file;
    return finding;
  }
  finding.state = missing;
  finding.found = fmt::format("none of {} can be opened", fmt::join(library.looked_for, ", "));
  return finding;
}

// NVIDIA's wheels, which every distribution can install; since CUDA 13 most names have no major version.
std::string install_command(const FoundSystem& system, const std::string& part) {
  constexpr std::int64_t kUsual = 12, kFirstWithoutSuffix = 13;
  const auto& driver = system.machine.driver.cuda_version;
  const std::int64_t major = driver ? std::min(*driver / 1000, kFirstWithoutSuffix) : kUsual;
  const bool has_suffix = major < kFirstWithoutSuffix || part == "nccl";
  return fmt::format("pip install nvidia-{}{}", part, has_suffix ? fmt::format("-cu{}", major) : "");
}

constexpr const char* kFoundThrough = "; the loader finds it in LD_LIBRARY_PATH or ldconfig's folders";

Finding runtime_finding(const FoundSystem& system) {
  const FoundLibrary& library = system.cuda_runtime;
  Finding finding = library_finding(library, "cuda_runtime", "CUDA runtime");
  finding.why = fmt::format("zeroplan's CUDA module calls it{}", kFoundThrough);
  if (finding.state == missing) {
    finding.mend = install_command(system, "cuda-runtime");
    return finding;
  }
  if (library.version) finding.found += ", CUDA " + cuda_version_text(*library.version);
  const auto& supported = system.machine.driver.cuda_version;
  // Within a major version, an older driver runs a newer runtime.
  if (library.version && supported && *library.version / 1000 > *supported / 1000) {
    finding.state = missing;
    finding.found += fmt::format("; the driver runs CUDA up to {}", cuda_version_text(*supported));
    finding.why = "the driver refuses a runtime of a later major version";
    finding.mend = install_command(system, "cuda-runtime");
  }
  return finding;
}

Finding cublaslt_finding(const FoundSystem& system) {
  Finding finding = library_finding(system.cublaslt, "cublaslt", "cuBLASLt");
  finding.why = fmt::format("it computes matrix products on GPUs{}", kFoundThrough);
  if (system.cublaslt.version) finding.found += ", " + version_text(*system.cublaslt.version);
  if (finding.state == ok) return finding;
  finding.mend = install_command(system, "cublas");
  return finding;
}

Finding nccl_finding(const FoundSystem& system) {
  Finding finding = library_finding(system.nccl, "nccl", "NCCL");
  const auto& version = system.nccl.version;
  if (version) finding.found += ", " + version_text(*version);
  const bool is_old = version && *version < kLeastNccl;
  if (is_old) finding.state = missing;
  finding.why = is_old ? fmt::format("zeroplan needs {} or later", version_text(kLeastNccl))
                       : "ranks on several GPUs talk through it; one GPU needs none";
  if (finding.state == missing) finding.mend = install_command(system, "nccl");
  return finding;
}

}  // namespace

void add_gpu_findings(const FoundSystem& system, RunsOn device, std::vector<Finding>& findings) {
  const bool on_gpus = device == RunsOn::cuda;
  const bool on_several = on_gpus && system.machine.gpus.size() > 1;
  const auto add = [&](Finding finding, bool needed) {
    finding.needed = needed;
    findings.push_back(std::move(finding));
  };
  add(driver_finding(system), on_gpus);
  if (system.machine.driver.works) add(gpus_finding(system), on_gpus);
  if (!system.machine.gpus.empty()) {
    add(mig_finding(system), false);
    add(clocks_finding(system), false);
    add(persistence_finding(system), false);
  }
  add(runtime_finding(system), on_gpus);
  add(cublaslt_finding(system), on_gpus);
  add(nccl_finding(system), on_several);
  add(module_finding(system.cuda_module, "cuda", "it runs plans on GPUs"), on_gpus);
  add(module_finding(system.nccl_module, "nccl", "it joins ranks on several GPUs; one GPU needs none"),
      on_several);
}

}  // namespace zeroplan::reports
