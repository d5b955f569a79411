#include "planner/predict/memory.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <iterator>
#include <map>
#include <random>

#include "executor/arena.hpp"
#include "executor/batches.hpp"
#include "executor/caching_allocator.hpp"
#include "executor/device/cpu/cpu_device.hpp"
#include "executor/process_memory.hpp"
#include "planner/program/compile.hpp"
#include "tests/executor/training_support.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;

TEST_CASE("the ordinary allocator gives pieces that do not overlap and takes them back") {
  const std::unique_ptr<Device> device = make_cpu_device({});
  CachingAllocator allocator(*device, program::Space::device);
  std::map<std::byte*, Bytes> held;
  std::mt19937 random(7);
  for (int i = 0; i < 4000; ++i) {
    if (held.size() < 40 && random() % 3 != 0) {
      const Bytes bytes = 1 + static_cast<Bytes>(random()) % (random() % 4 == 0 ? 30 * kMiB : 3 * kMiB / 2);
      std::byte* piece = allocator.allocate(bytes);
      const auto next = held.lower_bound(piece);
      if (next != held.end()) CHECK(piece + bytes <= next->first);
      if (next != held.begin()) CHECK(std::prev(next)->first + std::prev(next)->second <= piece);
      held.emplace(piece, bytes);
    } else if (!held.empty()) {
      auto piece = held.begin();
      std::advance(piece, static_cast<std::ptrdiff_t>(random() % held.size()));
      allocator.deallocate(piece->first);
      held.erase(piece);
    }
  }
  for (const auto& [piece, bytes] : held) allocator.deallocate(piece);
  // Everything is free and joined: a piece of any size that was there before needs nothing new.
  const Bytes reserved = allocator.reserved();
  allocator.allocate(30 * kMiB);
  CHECK(allocator.reserved() == reserved);
}

TEST_CASE("pieces of the wrong size stay behind: fragmentation") {
  const std::unique_ptr<Device> device = make_cpu_device({});
  CachingAllocator allocator(*device, program::Space::device);
  std::byte* first = allocator.allocate(30 * kMiB);
  allocator.allocate(40 * kMiB);
  allocator.deallocate(first);
  allocator.allocate(32 * kMiB);  // does not fit where the first one was
  CHECK(allocator.reserved() == 102 * kMiB);
}

TEST_CASE("without contiguous memory the results are the same and more is asked from the device") {
  const describe::Model model = test::tiny_gpt();
  describe::Plan plan = test::fp32_plan();
  plan.data_parallel = 2;
  plan.zero_stage = 3;
  std::vector<std::vector<float>> losses;
  for (const bool contiguous : {true, false}) {
    run_ranks(plan.data_parallel, ThreadOptions{}, [&](Communicator& world) {
      program::StepProgram program = program::compile(model, plan, position_of(world.rank(), 1));
      const predict::MemoryProfile memory = predict::read_memory(program);
      Rank rank(std::move(program), {memory.peak, memory.host_peak, contiguous}, make_cpu_device({}), world);
      rank.initialize(normal_initialization(1, model.layers));
      StepSettings settings;
      settings.learning_rate = 1e-2F;
      const auto batches = seeded_batches({.sequence = plan.sequence,
                                           .micro_batch = plan.micro_batch,
                                           .data_parallel = 2,
                                           .data_parallel_rank = world.rank()},
                                          model.vocabulary, 1);
      std::vector<float> seen;
      seen.reserve(3);
      for (int step = 0; step < 3; ++step) seen.push_back(rank.step(settings, *batches).loss);
      CHECK(rank.arena().high_water().device == memory.peak);
      if (contiguous) CHECK(rank.arena().reserved(program::Space::device) == memory.peak);
      if (!contiguous) CHECK(rank.arena().reserved(program::Space::device) > memory.peak);
      if (world.rank() == 0) losses.push_back(seen);
    });
  }
  CHECK(test::same_bits(losses[0], losses[1]));
}

TEST_CASE("the system's figures of this process: resident set and its highest") {
  reset_peak_resident();
  const Bytes before = resident_bytes();
  REQUIRE(before > 0);
  constexpr Bytes kBlock = 64 * kMiB;
  {
    const std::vector<char> touched(static_cast<std::size_t>(kBlock), 1);
    CHECK(resident_bytes() - before >= kBlock - kMiB);
  }
  CHECK(peak_resident_bytes() - before >= kBlock - kMiB);
  CHECK(process_number() == process_number());
}
