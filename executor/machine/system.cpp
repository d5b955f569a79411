#include "executor/machine/system.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <sstream>
#include <thread>

#include "executor/communicator/sockets/socket.hpp"
#include "executor/error.hpp"
#include "executor/machine/shared_library.hpp"
#include "executor/machine/system_files.hpp"
#include "executor/modules.hpp"

namespace zeroplan::executor {

namespace {

using std::filesystem::path;

constexpr int kUsualPort = 29500;  // torchrun's, where nobody says another
constexpr int kLowestPort = 1, kHighestPort = 65535;
constexpr std::int64_t kNanoseconds = 1'000'000'000;

FoundModule find_module(const std::string& name) {
  FoundModule module;
  module.problem = module_problem(name);
  module.works = module.problem.empty();
  return module;
}

FoundBlas find_blas(FoundModule& cpu_module) {
  FoundBlas blas;
  if (!cpu_module.works) return blas;
  try {
    const std::unique_ptr<Device> device = make_device("cpu", {.threads = 1});
    blas.device = device->name();
    blas.note = device->note();
  } catch (const std::exception& error) {
    cpu_module = {false, error.what()};
  }
  return blas;
}

std::optional<std::int64_t> soft_limit(decltype(RLIMIT_NOFILE) resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(limit.rlim_cur);
}

std::optional<std::string> find_program(const std::string& name, const std::string& folders) {
  std::istringstream parts(folders);
  for (std::string folder; std::getline(parts, folder, ':');) {
    const std::string file = path(folder) / name;
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return std::nullopt;
}

void try_port(const std::optional<std::string>& wanted, FoundSystem& system) {
  const std::int64_t number = leading_number(wanted.value_or("")).value_or(kUsualPort);
  system.rendezvous_port = number;
  if (number < kLowestPort || number > kHighestPort) {
    system.rendezvous_problem = "MASTER_PORT is no port: ports are from 1 to 65535";
    return;
  }
  try {
    const sockets::Socket listener = sockets::listen_at({"localhost", static_cast<int>(number)}, 1);
  } catch (const CommunicationError& error) {
    system.rendezvous_problem = error.what();
  }
}

std::int64_t monotonic_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kNanoseconds + now.tv_nsec;
}

// Reads the clock on each processor in turn, and then back again.
void compare_clocks(const cpu_set_t& allowed, FoundSystem& system) {
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  }
  cpus.insert(cpus.end(), cpus.rbegin(), cpus.rend());
  std::int64_t before = monotonic_nanoseconds();
  for (const int cpu : cpus) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) continue;
    const std::int64_t now = monotonic_nanoseconds();
    system.clock_steps_back_nanoseconds = std::max(system.clock_steps_back_nanoseconds, before - now);
    before = now;
  }
}

void read_processors(FoundSystem& system) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  system.allowed_cpus = CPU_COUNT(&allowed);
  // A thread of its own, whose processors nobody else has.
  std::thread([&] { compare_clocks(allowed, system); }).join();
}

void read_control_groups(const path& groups, FoundSystem& system) {
  auto memory = number_in(groups / "memory.max");
  if (!memory) memory = number_in(groups / "memory/memory.limit_in_bytes");
  // The first version's "no limit" is a number above any memory.
  const std::optional<Bytes>& all = system.machine.host.memory_bytes;
  if (memory && all && *memory < *all) system.cgroup_memory_bytes = *memory;
  // "150000 100000", "max 100000": microseconds of a period.
  std::optional<std::int64_t> quota;
  std::optional<std::int64_t> period;
  if (const auto line = first_line(groups / "cpu.max")) {
    quota = leading_number(*line);
    const std::size_t blank = line->find(' ');
    if (blank != std::string::npos) period = leading_number(line->substr(blank + 1));
  } else {
    quota = number_in(groups / "cpu/cpu.cfs_quota_us");
    period = number_in(groups / "cpu/cpu.cfs_period_us");
  }
  if (quota && period && *quota > 0 && *period > 0) {
    system.cgroup_cpus = static_cast<double>(*quota) / static_cast<double>(*period);
  }
}

std::optional<std::int64_t> written_version(const SharedLibrary& library, const char* symbol) {
  auto* const write = library.find<int(int*)>(symbol);
  int version = 0;
  if (write == nullptr || write(&version) != 0) return std::nullopt;
  return version;
}

std::optional<std::int64_t> cuda_runtime_version(const SharedLibrary& library) {
  return written_version(library, "cudaRuntimeGetVersion");
}

std::optional<std::int64_t> nccl_version(const SharedLibrary& library) {
  return written_version(library, "ncclGetVersion");
}

std::optional<std::int64_t> cublaslt_version(const SharedLibrary& library) {
  auto* const get = library.find<std::size_t()>("cublasLtGetVersion");
  return get == nullptr ? std::nullopt : std::optional(static_cast<std::int64_t>(get()));
}

// The word between brackets: "always [madvise] never".
std::optional<std::string> chosen_word(const std::string& line) {
  const std::size_t begin = line.find('[');
  const std::size_t end = line.find(']', begin == std::string::npos ? 0 : begin);
  if (begin == std::string::npos || end == std::string::npos) return std::nullopt;
  return line.substr(begin + 1, end - begin - 1);
}

}  // namespace

FoundLibrary find_library(const std::vector<std::string>& files, VersionFunction* version_of) {
  FoundLibrary found;
  found.looked_for = files;
  for (const std::string& file : files) {
    const SharedLibrary library(file);
    if (!library.opened()) continue;
    found.file = file;
    found.version = version_of(library);
    return found;
  }
  return found;
}

void read_system_files(const path& root, FoundSystem& system) {
  read_control_groups(root / "sys/fs/cgroup", system);
  system.huge_pages = number_in(root / "proc/sys/vm/nr_hugepages");
  const auto size = value_of(whole_file(root / "proc/meminfo").value_or(""), "Hugepagesize");
  // The kernel writes "kB" and means KiB.
  if (const auto kibibytes = leading_number(size.value_or(""))) system.huge_page_bytes = *kibibytes * kKiB;
  system.transparent_huge_pages =
      chosen_word(first_line(root / "sys/kernel/mm/transparent_hugepage/enabled").value_or(""));
  system.clock_source = first_line(root / "sys/devices/system/clocksource/clocksource0/current_clocksource");
}

FoundSystem find_system(const std::function<std::optional<std::string>(const std::string&)>& variable,
                        const MachinePlaces& places) {
  FoundSystem system;
  system.machine = find_machine(places);
  system.cpu_module = find_module("cpu");
  system.mpi_module = find_module("mpi");
  system.cuda_module = find_module("cuda");
  system.nccl_module = find_module("nccl");
  system.blas = find_blas(system.cpu_module);
  system.pins_with_hwloc =
      whole_file("/proc/self/maps").value_or("").find("/libhwloc.so") != std::string::npos;
  system.cuda_runtime =
      find_library({"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"}, cuda_runtime_version);
  system.cublaslt =
      find_library({"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"}, cublaslt_version);
  system.nccl = find_library({"libnccl.so.2"}, nccl_version);
  system.mpirun = find_program("mpirun", variable("PATH").value_or(""));
  try_port(variable("MASTER_PORT"), system);
  system.locked_memory_bytes = soft_limit(RLIMIT_MEMLOCK);
  system.open_files = soft_limit(RLIMIT_NOFILE);
  struct statvfs shared {};
  if (statvfs("/dev/shm", &shared) == 0) {
    system.shared_memory_bytes = static_cast<Bytes>(shared.f_blocks * shared.f_frsize);
  }
  read_system_files(places.root, system);
  read_processors(system);
  return system;
}

}  // namespace zeroplan::executor
