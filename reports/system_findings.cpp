#include <fmt/format.h>

#include <array>
#include <string>

#include "reports/finding_lists.hpp"

namespace zeroplan::reports {
namespace {

using enum FindingState;

// A rank holds a connection to every other rank on each of its hosts, and NCCL several.
constexpr std::int64_t kFewFiles = 1024, kFewFilesOnGpus = 4096;
// Docker gives 64 MiB; NCCL's buffers between the GPUs of a host without NVLink or PCIe access are above that.
constexpr Bytes kSmallShared = 1 * kGiB;
// RDMA registers its buffers, and pinned host memory of offload is locked.
constexpr Bytes kLittleLocked = 1 * kGiB;

std::string gib(Bytes bytes) {
  return bytes < kGiB ? fmt::format("{:.0f} MiB", static_cast<double>(bytes) / kMiB)
                      : fmt::format("{:.1f} GiB", static_cast<double>(bytes) / kGiB);
}

Finding port_finding(const FoundSystem& system) {
  Finding finding{.key = "port", .what = "port of the rendezvous"};
  finding.why = "rank 0 of processes that no MPI joins listens at MASTER_PORT";
  if (system.rendezvous_problem.empty()) {
    finding.found = fmt::format("{} is free", system.rendezvous_port);
    return finding;
  }
  finding.state = warning;
  finding.found = system.rendezvous_problem;
  finding.mend = "export MASTER_PORT=29511";
  return finding;
}

Finding locked_finding(const FoundSystem& system, RunsOn device) {
  Finding finding{.key = "locked_memory", .what = "limit of locked memory"};
  finding.why = "RDMA and pinned host memory lock what they use";
  if (!system.locked_memory_bytes) {
    finding.found = "none";
    return finding;
  }
  finding.found = gib(*system.locked_memory_bytes);
  bool has_rdma = false;
  for (const FoundNic& nic : system.machine.nics) has_rdma = has_rdma || nic.kind != "Ethernet";
  if (!(has_rdma || device == RunsOn::cuda) || *system.locked_memory_bytes >= kLittleLocked) return finding;
  finding.state = warning;
  finding.mend = "ulimit -l unlimited (of a container: docker run --ulimit memlock=-1)";
  return finding;
}

Finding files_finding(const FoundSystem& system, RunsOn device) {
  Finding finding{.key = "open_files", .what = "limit of open files"};
  finding.why = "every connection between ranks is an open file";
  finding.found = system.open_files ? fmt::format("{}", *system.open_files) : "none";
  const std::int64_t least = device == RunsOn::cuda ? kFewFilesOnGpus : kFewFiles;
  if (!system.open_files || *system.open_files >= least) return finding;
  finding.state = warning;
  finding.mend = "ulimit -n 65536";
  return finding;
}

Finding shared_finding(const FoundSystem& system, RunsOn device) {
  Finding finding{.key = "shared_memory", .what = "/dev/shm"};
  finding.why =
      "processes of one host exchange through it: MPI's, and NCCL's where GPUs do not reach each other";
  const auto& size = system.shared_memory_bytes;
  finding.found = size ? gib(*size) : "not there";
  const bool several = device == RunsOn::cuda && system.machine.gpus.size() > 1;
  if (size && (*size >= kSmallShared || !several)) return finding;
  finding.state = warning;
  finding.mend = "mount -o remount,size=8G /dev/shm (of a container: docker run --shm-size=8g)";
  return finding;
}

Finding memory_finding(const FoundSystem& system) {
  Finding finding{.key = "host_memory", .what = "host memory"};
  finding.why = "what is above it ends the run without a message";
  const auto& all = system.machine.host.memory_bytes;
  finding.found = all ? gib(*all) : "not known";
  if (!system.cgroup_memory_bytes) return finding;
  finding.state = warning;
  finding.found =
      fmt::format("{} of {}, by a control group", gib(*system.cgroup_memory_bytes), finding.found);
  finding.mend = "srun --mem=0 (of a container: docker run without --memory)";
  return finding;
}

Finding processors_finding(const FoundSystem& system) {
  Finding finding{.key = "processors", .what = "processors"};
  const std::int64_t all = system.machine.host.logical_cpus;
  finding.found = fmt::format("{} of {}", system.allowed_cpus, all);
  finding.why = "the ranks of this machine share them";
  const bool has_quota = system.cgroup_cpus && *system.cgroup_cpus < static_cast<double>(system.allowed_cpus);
  if (has_quota)
    finding.found += fmt::format(", {:.1f} of them in time by a control group", *system.cgroup_cpus);
  if (!has_quota && system.allowed_cpus >= all) return finding;
  finding.state = warning;
  finding.why = has_quota ? "a group that used up its time stands still until the next period, and times vary"
                          : "the launcher or the user bound this process; ranks share what is left";
  finding.mend = has_quota ? "docker run --cpuset-cpus in place of --cpus" : "taskset -p -c 0-4095 $$";
  return finding;
}

Finding huge_pages_finding(const FoundSystem& system) {
  Finding finding{.key = "huge_pages", .what = "huge pages"};
  finding.why = "the CPU device asks for them: products miss fewer addresses";
  finding.found = !system.huge_pages ? "not known"
                                     : fmt::format("{} reserved of {}", *system.huge_pages,
                                                   gib(system.huge_page_bytes.value_or(0)));
  const auto& transparent = system.transparent_huge_pages;
  finding.found += ", transparent ones: " + transparent.value_or("not known");
  if (transparent != std::optional<std::string>("never")) return finding;
  finding.state = warning;
  finding.mend = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
  return finding;
}

Finding clock_finding(const FoundSystem& system) {
  Finding finding{.key = "clock", .what = "monotonic clock"};
  const std::string source = system.clock_source.value_or("not known");
  finding.found = fmt::format("source {}", source);
  finding.why = "times of ranks are differences of its readings, many in a step";
  if (system.clock_steps_back_nanoseconds > 0) {
    finding.state = warning;
    finding.found += fmt::format("; it went back by {} ns from one processor to the next",
                                 system.clock_steps_back_nanoseconds);
    finding.why = "differences of times on different processors are wrong";
  } else {
    finding.found += ", never back from one processor to the next";
  }
  // Read from a device instead of the processor: a microsecond or more each.
  constexpr std::array<const char*, 4> kSlow{"hpet", "acpi_pm", "refined-jiffies", "jiffies"};
  for (const char* slow : kSlow) {
    if (source != slow) continue;
    finding.state = warning;
    finding.why = "reading it takes a microsecond or more, many times a step";
  }
  if (finding.state != ok) {
    finding.mend = "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource";
  }
  return finding;
}

}  // namespace

void add_system_findings(const FoundSystem& system, RunsOn device, std::vector<Finding>& findings) {
  findings.push_back(port_finding(system));
  findings.push_back(memory_finding(system));
  findings.push_back(processors_finding(system));
  findings.push_back(locked_finding(system, device));
  findings.push_back(files_finding(system, device));
  findings.push_back(shared_finding(system, device));
  findings.push_back(huge_pages_finding(system));
  findings.push_back(clock_finding(system));
}

}  // namespace zeroplan::reports
