#include "block/block.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "block/emulator.hpp"

// The block emulator itself: what it must get right, and what it must find.
namespace zeroplan::emulation {
namespace {

struct Lanes {
  LaneOrder order;
  std::uint64_t seed;
};
std::vector<Lanes> lane_orders() {
  std::vector<Lanes> orders{{LaneOrder::forward, 0}, {LaneOrder::reverse, 0}};
  for (std::uint64_t seed = 1; seed <= 6; ++seed) orders.push_back({LaneOrder::random, seed});
  return orders;
}

// The lanes' order is forward again behind each test.
struct InOrder {
  explicit InOrder(const Lanes& lanes) { set_lane_order(lanes.order, lanes.seed); }
  ~InOrder() { set_lane_order(LaneOrder::forward); }
  InOrder(const InOrder&) = delete;
  InOrder& operator=(const InOrder&) = delete;
  InOrder(InOrder&&) = delete;
  InOrder& operator=(InOrder&&) = delete;
};

template <class Kernel>
std::string error_of(const GridShape& shape, const Kernel& kernel) {
  try {
    run_grid("faulty", shape, kernel);
  } catch (const BlockError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The sum of a block's values, by shuffles within warps and shared memory between them.
void block_sums(const float* values, float* sums, bool with_barrier) {
  auto* const slots = reinterpret_cast<float*>(shared_memory());
  float sum = values[blockIdx.x * blockDim.x + threadIdx.x];
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, lanes);
  if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = sum;
  if (with_barrier) __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) total += slots[warp];
    sums[blockIdx.x] = total;
  }
}

constexpr unsigned kBlocks = 3;
constexpr unsigned kThreads = 128;
constexpr GridShape kReduction{{kBlocks, 1, 1}, {kThreads, 1, 1}, kThreads / 32 * sizeof(float)};

// How many blocks' sums are wrong.
unsigned wrong_sums(bool with_barrier) {
  std::vector<float> values(kBlocks * kThreads);
  std::iota(values.begin(), values.end(), 0.0F);
  std::vector<float> sums(kBlocks);
  run_grid("block_sums", kReduction, [&] { block_sums(values.data(), sums.data(), with_barrier); });
  unsigned wrong = 0;
  for (unsigned block = 0; block < kBlocks; ++block) {
    const float* first = values.data() + block * kThreads;
    if (sums[block] != std::accumulate(first, first + kThreads, 0.0F)) ++wrong;
  }
  return wrong;
}

TEST_CASE("a reduction is right in every order of lanes") {
  for (const Lanes& lanes : lane_orders()) {
    const InOrder order(lanes);
    CHECK(wrong_sums(true) == 0);
  }
}

TEST_CASE("a missing barrier shows in some order of lanes") {
  unsigned wrong = 0;
  for (const Lanes& lanes : lane_orders()) {
    const InOrder order(lanes);
    wrong += wrong_sums(false);
  }
  CHECK(wrong > 0);
}

TEST_CASE("every lane of every block runs once and knows where it is") {
  for (const Lanes& lanes : lane_orders()) {
    const InOrder order(lanes);
    const GridShape shape{{2, 3, 2}, {5, 2, 4}, 0};
    std::vector<int> runs(std::size_t{12} * 40);
    run_grid("indices", shape, [&] {
      CHECK((gridDim.x == 2 && gridDim.y == 3 && gridDim.z == 2));
      const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
      const unsigned lane = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
      ++runs[block * 40 + lane];
    });
    CHECK(std::all_of(runs.begin(), runs.end(), [](int times) { return times == 1; }));
  }
}

TEST_CASE("shuffles and votes give what CUDA's give") {
  for (const Lanes& lanes : lane_orders()) {
    const InOrder order(lanes);
    run_grid("shuffles", {{1, 1, 1}, {64, 1, 1}, 0}, [] {
      const auto lane = static_cast<int>(threadIdx.x % 32);
      const int value = 100 + static_cast<int>(threadIdx.x);
      const int first = 100 + static_cast<int>(threadIdx.x / 32) * 32;
      CHECK(__shfl_sync(0xffffffffU, value, 5) == first + 5);
      CHECK(__shfl_sync(0xffffffffU, value, 5, 8) == first + lane / 8 * 8 + 5);
      CHECK(__shfl_xor_sync(0xffffffffU, value, 3) == first + (lane ^ 3));
      CHECK(__shfl_down_sync(0xffffffffU, value, 4) == first + (lane + 4 < 32 ? lane + 4 : lane));
      CHECK(__shfl_up_sync(0xffffffffU, value, 4, 8) == first + (lane % 8 >= 4 ? lane - 4 : lane));
      CHECK(__ballot_sync(0xffffffffU, lane % 2) == 0xaaaaaaaaU);
      CHECK(__any_sync(0xffffffffU, lane == 31) == 1);
      CHECK(__all_sync(0xffffffffU, lane < 31) == 0);
      CHECK(__syncthreads_count(threadIdx.x % 4 == 0) == 16);
      CHECK(__syncthreads_or(threadIdx.x == 63) == 1);
      CHECK(__syncthreads_and(threadIdx.x < 63) == 0);
      // Halves of a warp that go ways of their own.
      if (lane < 16) {
        CHECK(__shfl_xor_sync(0x0000ffffU, value, 1) == first + (lane ^ 1));
      } else {
        CHECK(__shfl_xor_sync(0xffff0000U, value, 2) == first + (lane ^ 2));
      }
    });
  }
}

TEST_CASE("shared memory begins as NaN in each block") {
  run_grid("shared", {{4, 1, 1}, {1, 1, 1}, 8}, [] {
    auto* const shared = reinterpret_cast<float*>(shared_memory());
    CHECK(std::isnan(shared[0]));
    CHECK(std::isnan(shared[1]));
    shared[0] = shared[1] = 1;
  });
}

TEST_CASE("a deadlock is named with its lanes") {
  for (const Lanes& lanes : lane_orders()) {
    const InOrder order(lanes);
    const std::string ended = error_of({{1, 1, 1}, {96, 1, 1}, 0}, [] {
      if (threadIdx.x >= 40 && threadIdx.x < 64) return;
      __syncthreads();
    });
    CHECK(contains(ended, "faulty, block (0, 0, 0) cannot go on:"));
    CHECK(contains(ended, "lanes 0 to 39, 64 to 95 wait at __syncthreads (block_test.cpp:"));
    CHECK(contains(ended, "lanes 40 to 63 ended"));
    const std::string warp = error_of({{1, 1, 1}, {32, 1, 1}, 0}, [] {
      if (threadIdx.x == 7) return;
      __syncwarp();
    });
    CHECK(contains(warp, "lanes 0 to 6, 8 to 31 wait at __syncwarp"));
    CHECK(contains(warp, "lane 7 ended"));
  }
}

// Here and not in a macro, where all that is written has one place.
const auto two_barriers = [] {
  if (threadIdx.x < 16) {
    __syncthreads();
  } else {
    __syncthreads();
  }
};

TEST_CASE("masks and places that do not fit are refused") {
  for (const Lanes& lanes : lane_orders()) {
    const InOrder order(lanes);
    const GridShape warp{{1, 1, 1}, {32, 1, 1}, 0};
    CHECK(contains(error_of(warp, [] { __syncwarp(0x7fffffffU); }), "leaves out the lane itself"));
    CHECK(contains(error_of({{1, 1, 1}, {24, 1, 1}, 0}, [] { __syncwarp(); }),
                   "names lanes that a warp of 24 does not have"));
    CHECK(contains(error_of(warp,
                            [] {
                              if (threadIdx.x < 16) {
                                __syncwarp(0x0001ffffU);
                              } else {
                                __syncwarp(0xffff0000U);
                              }
                            }),
                   "wait at __syncwarp"));
    CHECK(contains(error_of(warp, two_barriers), "lanes of its block wait at __syncthreads"));
    CHECK(contains(error_of(warp,
                            [] {
                              if (threadIdx.x < 16) (void)__shfl_sync(0x0000ffffU, 1, 16);
                            }),
                   "not in its mask"));
  }
}

// Each lane copies its number in and reads its neighbour's, twice over the same memory.
void exchange_copies(const unsigned* numbers, unsigned* got, bool with_wait, bool with_barrier) {
  auto* const shared = reinterpret_cast<unsigned*>(shared_memory());
  const unsigned self = threadIdx.x;
  for (unsigned turn = 0; turn < 2; ++turn) {
    start_copy(shared + self, numbers + turn * blockDim.x + self, 4, 0);
    end_copy_group();
    if (with_wait) wait_for_copies(0);
    __syncthreads();
    got[turn * blockDim.x + self] = shared[(self + 1) % blockDim.x];
    if (with_barrier) __syncthreads();
  }
  wait_for_copies(0);
}

unsigned wrong_copies(bool with_wait, bool with_barrier) {
  std::vector<unsigned> numbers(128);
  std::iota(numbers.begin(), numbers.end(), 0U);
  std::vector<unsigned> got(numbers.size());
  run_grid("exchange_copies", {{1, 1, 1}, {64, 1, 1}, 64 * 4},
           [&] { exchange_copies(numbers.data(), got.data(), with_wait, with_barrier); });
  unsigned wrong = 0;
  for (unsigned i = 0; i < got.size(); ++i) wrong += got[i] != i / 64 * 64 + (i + 1) % 64 ? 1 : 0;
  return wrong;
}

TEST_CASE("copies beside a lane show a missing wait and a missing barrier") {
  unsigned without_wait = 0;
  unsigned without_barrier = 0;
  for (const Lanes& lanes : lane_orders()) {
    const InOrder order(lanes);
    CHECK(wrong_copies(true, true) == 0);
    without_wait += wrong_copies(false, true);
    without_barrier += wrong_copies(true, false);
    CHECK(contains(error_of({{1, 1, 1}, {1, 1, 1}, 4}, [] { start_copy(shared_memory(), nullptr, 0, 4); }),
                   lanes.order == LaneOrder::forward ? "copies that it did not wait for" : ""));
  }
  CHECK(without_wait > 0);
  CHECK(without_barrier > 0);
}

TEST_CASE("what a kernel throws comes out, and the next grid runs") {
  for (const Lanes& lanes : lane_orders()) {
    const InOrder order(lanes);
    CHECK_THROWS_AS(run_grid("thrower", {{2, 1, 1}, {64, 1, 1}, 0},
                             [] {
                               if (threadIdx.x == 33) throw std::logic_error("lane 33");
                               __syncthreads();
                             }),
                    std::logic_error);
    CHECK(wrong_sums(true) == 0);
  }
}

}  // namespace
}  // namespace zeroplan::emulation
