#include "runtime/fence.hpp"

// What there is under the address sanitizer alone.
#ifdef ZEROPLAN_EMULATION_FENCES

#include <doctest/doctest.h>
#include <sanitizer/asan_interface.h>

#include <array>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/machine.hpp"
#include "runtime/queue.hpp"
#include "tests/support/process.hpp"

namespace {

using zeroplan::emulation::enqueue;
using zeroplan::emulation::host;
using zeroplan::emulation::Machine;
using zeroplan::emulation::Range;

bool is_fenced(const std::byte* at) { return __asan_address_is_poisoned(at) != 0; }

std::byte* block_of(std::size_t bytes) {
  void* block = nullptr;
  REQUIRE(cudaMalloc(&block, bytes) == cudaSuccess);
  return static_cast<std::byte*>(block);
}

void run(std::span<const Range> ranges, std::function<void()> body) {
  REQUIRE(enqueue(nullptr, "kernel", ranges, std::move(body)) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
}

}  // namespace

TEST_CASE("while an operation runs, only what it declared is addressable") {
  const Machine machine;
  std::byte* block = block_of(4096);
  std::byte* other = block_of(4096);
  const std::byte* memory = host(block);
  const std::array<Range, 2> ranges{Range{block + 64, 64, true, false}, Range{block + 260, 8, false, true}};
  std::vector<std::ptrdiff_t> fenced;
  bool other_is_fenced = true;
  run(ranges, [&] {
    for (std::ptrdiff_t i = 0; i < 4200; ++i) {
      if (is_fenced(memory + i)) fenced.push_back(i);
    }
    other_is_fenced = is_fenced(host(other));
  });
  // To eight bytes: 256 to 259 are in one word with what is declared.
  std::vector<std::ptrdiff_t> want;
  for (std::ptrdiff_t i = 0; i < 4200; ++i) {
    if ((i < 64 || i >= 128) && (i < 256 || i >= 268)) want.push_back(i);
  }
  CHECK(fenced == want);
  CHECK_FALSE(other_is_fenced);
  for (std::ptrdiff_t i = 0; i < 4200; ++i) CHECK_FALSE(is_fenced(memory + i));
  CHECK(cudaFree(block) == cudaSuccess);
  CHECK(cudaFree(other) == cudaSuccess);
}

// Ends the process: the next case runs it.
TEST_CASE("fence: a kernel that reads what it did not declare" * doctest::skip()) {
  const Machine machine;
  std::byte* block = block_of(4096);
  const std::array<Range, 1> ranges{Range{block, 64, true, true}};
  auto* memory = reinterpret_cast<volatile float*>(host(block));
  run(ranges, [=] { memory[0] = memory[16]; });
}

TEST_CASE("the sanitizer tells a read that was not declared") {
  const std::string own = std::filesystem::read_symlink("/proc/self/exe").string();
  const zeroplan::test::CommandResult result = zeroplan::test::run_shell(
      "'" + own + "' --no-skip -tc='fence: a kernel that reads what it did not declare'");
  CHECK(result.exit_code != 0);
  CHECK(result.err.find("use-after-poison") != std::string::npos);
}

#endif
