#include "cli/environment.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>

#include <chrono>
#include <thread>

#include "cli/version.hpp"
#include "executor/machine/host.hpp"
#include "planner/describe/machine/cluster.hpp"

namespace zeroplan::cli {
namespace {

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
  environment.processor = executor::read_host().processor;
  if (environment.processor.empty()) environment.processor = "unknown processor";
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
