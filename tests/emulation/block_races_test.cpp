#include <doctest/doctest.h>

#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "block/emulator.hpp"
#include "executor/device/cuda/cuda_device.hpp"
#include "tests/executor/step_table.hpp"

// Races within blocks, for the thread sanitizer: its reports are what these tests are about, and make the program fail.
// A lane is a thread to it, so one order of lanes tells of all. Types make no difference to who waits for whom.
using namespace zeroplan;
using namespace zeroplan::executor;
using namespace zeroplan::executor::test;

namespace {

// Sums of neighbours by way of shared memory.
void add_neighbours(const int* from, int* to, bool with_barrier) {
  auto* const shared = reinterpret_cast<int*>(emulation::shared_memory());
  const unsigned self = threadIdx.x;
  shared[self] = from[self];
  if (with_barrier) __syncthreads();
  to[self] = shared[self] + shared[(self + 1) % blockDim.x];
  __syncthreads();
}

void run_add_neighbours(bool with_barrier) {
  std::vector<int> from(64);
  std::iota(from.begin(), from.end(), 0);
  std::vector<int> to(from.size());
  emulation::run_grid("add_neighbours", {{3, 1, 1}, {64, 1, 1}, 64 * sizeof(int)},
                      [&] { add_neighbours(from.data(), to.data(), with_barrier); });
  if (with_barrier) CHECK(to[63] == 63);
}

// The last lane of a warp reads what the others wrote, behind a shuffle, which orders nothing, or behind __syncwarp.
void run_hand_over(bool with_syncwarp) {
  emulation::run_grid("hand_over", {{1, 1, 1}, {32, 1, 1}, 32 * sizeof(int)}, [&] {
    auto* const shared = reinterpret_cast<int*>(emulation::shared_memory());
    shared[threadIdx.x] = 1;
    (void)__shfl_xor_sync(0xffffffffU, 1, 1);
    if (with_syncwarp) __syncwarp();
    if (threadIdx.x == 31) CHECK(std::accumulate(shared, shared + 32, 0) == 32);
  });
}

}  // namespace

TEST_CASE("races within blocks: none where barriers are") {
  run_add_neighbours(true);
  run_hand_over(true);
}

TEST_CASE("races within blocks: none in the smallest of the table") {
  const std::unique_ptr<Device> device = make_cuda_device({});
  for (const KernelCase& one : kernel_table()) {
    if (one.is_long() || !std::string_view(one.name).ends_with("fp16")) continue;
    CAPTURE(one.name);
    one.check(*device);
  }
}

TEST_CASE("races within blocks: none in attention on tensor cores") {
  const std::unique_ptr<Device> device = make_cuda_device({});
  check_flash_attention(*device, {1, 140, 2, 1, 64}, false, 997, DataType::fp16);  // two blocks of queries
  check_flash_attention(*device, {1, 33, 1, 1, 256}, false, 997, DataType::bf16);
}

// Seeded, one by one: ctest wants to see the report of each.
TEST_CASE("seeded race: a missing barrier" * doctest::skip()) { run_add_neighbours(false); }
TEST_CASE("seeded race: a shuffle in place of __syncwarp" * doctest::skip()) { run_hand_over(false); }
