#include "executor/process_memory.hpp"

#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>
#include <string>

#include "executor/random.hpp"

namespace zeroplan::executor {

namespace {

// A line of /proc/self/status in kB (of 1024 bytes).
Bytes status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (!line.starts_with(key)) continue;
    std::istringstream words(line.substr(key.size()));
    Bytes kibibytes = 0;
    words >> kibibytes;
    return kibibytes * kKiB;
  }
  return 0;
}

}  // namespace

Bytes resident_bytes() { return status_bytes("VmRSS:"); }
Bytes data_bytes() { return status_bytes("VmData:"); }
Bytes peak_resident_bytes() { return status_bytes("VmHWM:"); }

void reset_peak_resident() {
  // proc(5): writing 5 to clear_refs resets the peak resident set size.
  std::ofstream("/proc/self/clear_refs") << 5;
}

std::int64_t process_number() {
  const std::uint64_t mixed =
      mix(static_cast<std::uint64_t>(host_number()) ^ static_cast<std::uint64_t>(::getpid()));
  return static_cast<std::int64_t>(mixed >> 1);
}

std::int64_t host_number() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return static_cast<std::int64_t>(mix(hash_of(host.data())) >> 1);
}

}  // namespace zeroplan::executor
