#include <doctest/doctest.h>
#include <sched.h>

#include <cinttypes>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "executor/device/cpu/cpu_device.hpp"
#include "executor/device/cpu/pinning.hpp"
#include "executor/device/cpu/vector_level.hpp"

// What the CPU device asks of this host beside its arithmetic.

using namespace zeroplan;
using namespace zeroplan::executor;
using cpu::VectorLevel;

namespace {

// The processors that the calling thread may use.
cpu_set_t own_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  REQUIRE(::sched_getaffinity(0, sizeof set, &set) == 0);
  return set;
}

// What was said, and what a thread may use that the pinned one started.
std::pair<std::string, cpu_set_t> pinned(const HostShare& share, const cpu_set_t* before = nullptr) {
  std::pair<std::string, cpu_set_t> result;
  std::thread([&] {
    if (before != nullptr) ::sched_setaffinity(0, sizeof *before, before);
    result.first = cpu::pin_to_share(share);
    std::thread([&] { result.second = own_processors(); }).join();
  }).join();
  return result;
}

// Bytes of huge pages in the mapping that holds `address`, as the kernel counts them.
Bytes huge_bytes(const std::byte* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) inside = begin <= wanted && wanted < end;
    std::int64_t kibibytes = 0;
    if (inside && std::sscanf(line.c_str(), "AnonHugePages: %" SCNd64 " kB", &kibibytes) == 1)
      return kibibytes * kKiB;
  }
  return 0;
}

}  // namespace

TEST_CASE("cpu device: ranks have cores of their own, and their threads with them") {
  const cpu_set_t all = own_processors();
  const auto [said, first] = pinned({.index = 0, .count = 2, .threads = 1});
  const auto [said_too, second] = pinned({.index = 1, .count = 2, .threads = 1});
  if (said.empty()) {
    MESSAGE("not pinned: one core, bound already, or built without hwloc");
    CHECK(CPU_EQUAL(&first, &all));
    return;
  }
  CHECK(said.starts_with("pinned to "));
  CHECK(said_too.starts_with("pinned to "));
  cpu_set_t shared, both;
  CPU_AND(&shared, &first, &second);
  CPU_OR(&both, &first, &second);
  CHECK(CPU_COUNT(&shared) == 0);
  CHECK(CPU_COUNT(&first) > 0);
  CHECK(CPU_COUNT(&second) > 0);
  CPU_AND(&both, &both, &all);
  CHECK(CPU_COUNT(&both) == CPU_COUNT(&first) + CPU_COUNT(&second));

  // More threads than processors, more ranks than cores: nobody is pinned.
  for (const HostShare& share : {HostShare{0, 2, CPU_COUNT(&all)}, HostShare{0, CPU_COUNT(&all) + 1, 1}}) {
    const auto [nothing, mask] = pinned(share);
    CHECK(nothing.empty());
    CHECK(CPU_EQUAL(&mask, &all));
  }
  // Bound by a launcher: it stays so.
  const auto [nothing, mask] = pinned({.index = 0, .count = 1, .threads = 1}, &first);
  CHECK(nothing.empty());
  CHECK(CPU_EQUAL(&mask, &first));
}

TEST_CASE("cpu device: large blocks are of huge pages where the kernel has them") {
  std::string allowed;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), allowed);
  if (allowed.find("[madvise]") == std::string::npos) return;  // the kernel decides for all alike
  const auto device = make_cpu_device({.threads = 1});
  constexpr Bytes kBytes = 64 * kMiB;
  std::byte* block = device->allocate(kBytes, program::Space::device);
  for (Bytes i = 0; i < kBytes; i += 4 * kKiB) block[i] = std::byte{1};
  const Bytes huge = huge_bytes(block + kBytes / 2);
  MESSAGE(huge << " of " << kBytes << " bytes in huge pages");
  CHECK(huge > 0);
  device->deallocate(block, kBytes, program::Space::device);
}

TEST_CASE("cpu device: kernels that the environment forces below the processor are noted") {
  CHECK(cpu::level_of_kernels("Haswell") == VectorLevel::avx2);
  CHECK(cpu::level_of_kernels("SkylakeX") == VectorLevel::avx512);
  CHECK(cpu::level_of_kernels("Cooperlake") == VectorLevel::avx512);
  CHECK(cpu::level_of_kernels("Sandybridge") == VectorLevel::avx);
  CHECK(cpu::level_of_kernels("Nehalem") == VectorLevel::sse);
  CHECK(!cpu::level_of_kernels("armv8").has_value());
  const std::string note = cpu::forced_kernels_note("Haswell", "Haswell", VectorLevel::avx512);
  CHECK(note.find("OPENBLAS_CORETYPE to Haswell") != std::string::npos);
  CHECK(note.find("AVX2 kernels, and this processor has AVX-512") != std::string::npos);
  CHECK(cpu::forced_kernels_note("", "Haswell", VectorLevel::avx512).empty());
  CHECK(cpu::forced_kernels_note("Haswell", "Haswell", VectorLevel::avx2).empty());
  // OpenBLAS does not know the name and chooses itself.
  CHECK(cpu::forced_kernels_note("Fastest", "SkylakeX", VectorLevel::avx512).empty());
  CHECK(cpu::forced_kernels_note("Haswell", "armv8", VectorLevel::avx512).empty());
  CHECK(cpu::forced_kernels_note("Haswell", "Haswell", std::nullopt).empty());

  // The kernel's own list of what the processor has.
  std::ifstream information("/proc/cpuinfo");
  for (std::string line; std::getline(information, line);) {
    if (!line.starts_with("flags")) continue;
    CHECK((line.find(" avx512f ") != std::string::npos) ==
          (cpu::level_of_processor() == VectorLevel::avx512));
    CHECK((line.find(" avx2 ") != std::string::npos) == (cpu::level_of_processor() >= VectorLevel::avx2));
    return;
  }
}
