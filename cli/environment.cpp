#include "cli/environment.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "cli/version.hpp"
#include "planner/describe/machine/cluster.hpp"

namespace zeroplan::cli {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::string system_name() {
  utsname names{};
  if (::uname(&names) != 0) return "unknown system";
  return fmt::format("{} {} {}", names.sysname, names.release, names.machine);
}

}  // namespace

std::string_view compiler_name() {
#ifdef __clang__
  return "clang " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

reports::RunEnvironment run_environment(const std::vector<std::string>& words) {
  reports::RunEnvironment environment;
  environment.processor = processor_name();
  environment.logical_cpus = std::thread::hardware_concurrency();
  environment.memory_bytes = describe::host_memory_bytes();
  environment.system = system_name();
  environment.compiler = compiler_name();
  environment.commit = commit();
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  environment.started = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
  environment.command = fmt::format("zeroplan {}", fmt::join(words, " "));
  return environment;
}

}  // namespace zeroplan::cli
