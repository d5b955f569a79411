#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>

#include "planner/describe/machine/cluster.hpp"
#include "planner/describe/text/quantity.hpp"

namespace zeroplan::describe {
namespace {

// Files of /proc and /sys state no size, so they are read to their end.
std::string read_system_file(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::optional<std::int64_t> leading_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  text = text.substr(0, text.find_first_not_of("0123456789"));
  try {
    return parse_integer(text, 0, std::numeric_limits<std::int64_t>::max());
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<Bytes> parse_host_memory(const std::string& meminfo, const std::string& cgroup_limit) {
  constexpr std::string_view kLabel = "MemTotal:";
  const std::size_t at = meminfo.find(kLabel);
  if (at == std::string::npos) return std::nullopt;
  const auto kib = leading_number(std::string_view(meminfo).substr(at + kLabel.size()));
  if (!kib || *kib == 0 || *kib > std::numeric_limits<Bytes>::max() / kKiB) return std::nullopt;
  const Bytes total = *kib * kKiB;  // the kernel writes "kB" and means KiB
  const auto limit = leading_number(cgroup_limit);
  return limit && *limit > 0 ? std::min(total, *limit) : total;
}

Bytes host_memory_bytes() {
  std::string limit = read_system_file("/sys/fs/cgroup/memory.max");
  if (limit.empty()) limit = read_system_file("/sys/fs/cgroup/memory/memory.limit_in_bytes");
  const std::optional<Bytes> bytes = parse_host_memory(read_system_file("/proc/meminfo"), limit);
  if (!bytes) {
    throw ConfigurationError(
        Problem{"/proc/meminfo", 0, "MemTotal",
                "not readable, so the memory of this machine is not known; describe it in a "
                "file (docs/hardware.md)"});
  }
  return *bytes;
}

}  // namespace zeroplan::describe
