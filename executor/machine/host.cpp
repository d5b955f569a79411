#include "executor/machine/host.hpp"

#include <set>
#include <string>
#include <system_error>

#include "executor/machine/system_files.hpp"

namespace zeroplan::executor {

namespace {

using std::filesystem::path;

// How many entries of a folder are named `prefix` and a number.
std::int64_t numbered_entries(const path& folder, const std::string& prefix) {
  std::int64_t count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && leading_number(name.substr(prefix.size()))) ++count;
  }
  return count;
}

void read_topology(const path& cpus, FoundHost& host) {
  std::set<std::int64_t> sockets;
  std::set<std::pair<std::int64_t, std::int64_t>> cores;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(cpus, error)) {
    const path topology = entry.path() / "topology";
    const auto socket = number_in(topology / "physical_package_id");
    const auto core = number_in(topology / "core_id");
    if (!socket || !core) continue;  // no processor, or one that is off
    sockets.insert(*socket);
    cores.insert({*socket, *core});
  }
  if (sockets.empty()) return;
  host.sockets = static_cast<std::int64_t>(sockets.size());
  host.cores = static_cast<std::int64_t>(cores.size());
}

}  // namespace

FoundHost read_host(const path& root) {
  FoundHost host;
  if (const auto text = whole_file(root / "proc/cpuinfo")) {
    host.processor = value_of(*text, "model name").value_or("");
  }
  const path system = root / "sys/devices/system";
  host.logical_cpus = numbered_entries(system / "cpu", "cpu");
  read_topology(system / "cpu", host);
  const std::int64_t nodes = numbered_entries(system / "node", "node");
  if (nodes > 0) host.numa_nodes = nodes;
  const auto memory = value_of(whole_file(root / "proc/meminfo").value_or(""), "MemTotal");
  // The kernel writes "kB" and means KiB.
  if (const auto kibibytes = leading_number(memory.value_or(""))) host.memory_bytes = *kibibytes * kKiB;
  return host;
}

}  // namespace zeroplan::executor
