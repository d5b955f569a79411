#include "planner/predict/memory.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <random>

#include "executor/arena.hpp"
#include "executor/batches.hpp"
#include "executor/caching_allocator.hpp"
#include "executor/canary.hpp"
#include "executor/device/cpu/cpu_device.hpp"
#include "executor/error.hpp"
#include "executor/process_memory.hpp"
#include "planner/program/block_places.hpp"
#include "planner/program/compile.hpp"
#include "planner/program/order.hpp"
#include "tests/executor/training_support.hpp"
#include "tests/support/pipelined.hpp"

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
  const describe::Model model = executor::test::tiny_gpt();
  describe::Plan plan = executor::test::fp32_plan();
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
  CHECK(executor::test::same_bits(losses[0], losses[1]));
}

TEST_CASE("a canary counts the units in which something was written, wherever in them") {
  constexpr Bytes kUnit = 256;
  const std::unique_ptr<Device> device = make_cpu_device({});
  std::vector<std::byte> memory(10 * 1024);
  const auto bytes = static_cast<Bytes>(memory.size());
  canary::plant(*device, memory.data(), bytes);
  CHECK(canary::written(*device, memory.data(), bytes, kUnit) == 0);
  for (const std::size_t at : {0U, 255U, 256U, 5003U, 10239U}) memory[at] ^= std::byte{1};
  CHECK(canary::written(*device, memory.data(), bytes, kUnit) == 4 * kUnit);
  CHECK(canary::written(*device, memory.data(), bytes, bytes) ==
        bytes);  // larger than a block of the pattern
  CHECK(canary::written(*device, memory.data(), 1024 + 100, 1024) == 1024);
  CHECK(canary::written(*device, memory.data() + 512, 1024, 2) == 0);
  // Nothing that is computed looks like it: zeros, ones, and the NaN of a step that is skipped.
  for (const std::uint32_t word : {0U, 0x3f800000U, 0x7fc00000U, 0xffc00000U}) {
    std::memcpy(memory.data(), &word, 4);
    CHECK(canary::written(*device, memory.data(), 4, 4) == 4);
  }
}

namespace {

// Two buffers of 1000 floats in an arena that is observed, and what is written at the peak.
struct Observed {
  std::unique_ptr<Device> device = make_cpu_device({});
  program::StepProgram program;
  std::optional<Arena> arena;
  Arena::Life states, life;
  bool began = false;

  explicit Observed(bool contiguous = true) {
    for (const program::Category category : {program::Category::parameter, program::Category::activation}) {
      program::Buffer buffer;
      buffer.name = "a";
      buffer.category = category;
      buffer.elements = 1000;
      buffer.bytes = 4096;
      program.buffers.push_back(buffer);
    }
    ArenaSize size{8192, 0, contiguous};
    size.observed = true;
    size.unit = 256;
    arena.emplace(*device, program, size);
    states = arena->acquire(0, 0);
    acquire();
  }
  // As a program is lowered first, and played then.
  void acquire() {
    arena->acquire(1, 0);
    life = arena->release(1, 0);
    if (!began) arena->begin_life(states);
    began = true;
    arena->begin_life(life);
  }
  void release() { arena->end_life(life); }
  Tensor tensor(program::BufferId buffer) const {
    const Arena::Life& of = buffer == 0 ? states : life;
    return {of.memory, program::DataType::fp32, 1000};
  }
  void write(program::BufferId buffer, Elements first, Elements count) const {
    const auto all = tensor(buffer).as<float>();
    std::fill_n(all.begin() + static_cast<std::ptrdiff_t>(first), count, 1.0F);
  }
  Bytes at(program::Category category) const {
    return arena->written_at_high_water()[static_cast<std::size_t>(category)];
  }
};

}  // namespace

TEST_CASE("an arena that is observed counts what was written of what was held at the peak") {
  for (const bool contiguous : {true, false}) {
    Observed whole(contiguous);
    whole.write(0, 0, 1000);
    whole.write(1, 0, 1000);
    whole.release();
    whole.arena->end_observation();
    CHECK(whole.at(program::Category::parameter) == 4096);
    CHECK(whole.at(program::Category::activation) == 4096);

    // Half of a buffer is touched, and the other one was written only when it was held again.
    Observed half(contiguous);
    half.write(0, 0, 500);
    half.release();
    half.acquire();
    half.write(1, 0, 1000);
    half.release();
    half.arena->end_observation();
    CHECK(half.at(program::Category::parameter) == 2048);
    CHECK(half.at(program::Category::activation) == 0);
  }
}

TEST_CASE("what the engine alone holds has a place that nothing touches or uses") {
  const std::unique_ptr<Device> device = make_cpu_device({});
  program::StepProgram program;
  program.buffers.resize(2);
  program.buffers[0].name = "rest";
  program.buffers[0].bytes = 64 * kMiB;
  program.buffers[0].reserved = true;
  program.buffers[1].name = "used";
  program.buffers[1].elements = 1000;
  program.buffers[1].bytes = 4096;
  for (const bool contiguous : {true, false}) {
    ArenaSize size{64 * kMiB + 4096, 0, contiguous};
    size.observed = true;
    Arena arena(*device, program, size);
    const Bytes before = resident_bytes();
    arena.begin_life(arena.acquire(0, 0));
    arena.begin_life(arena.acquire(1, 0));
    CHECK_THROWS_WITH_AS(arena.tensor(0, 0), "\"rest\" [0] is used, but it is the engine's alone",
                         DeviceError);
    CHECK(arena.tensor(1, 0).elements == 1000);
    arena.end_observation();
    CHECK(arena.written_at_high_water() == CategoryBytes{});
    CHECK(resident_bytes() - before < 32 * kMiB);  // also where pages are huge
  }
}

TEST_CASE("what is written past the end of a buffer is found and named") {
  Observed released;
  released.write(1, 0, 1025);
  CHECK_THROWS_WITH_AS(released.release(), "something was written past the end of \"a\" [0]", DeviceError);
  Observed held;
  held.write(0, 1000, 24);  // to its own end
  held.arena->check_held();
  held.write(0, 1039, 1);
  CHECK_THROWS_AS(held.arena->check_held(), DeviceError);
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

namespace {

// What `sum` comes to when the program runs in an arena of the planned size.
struct Ran {
  float sum = 0;
  Bytes planned = 0, allocated = 0, high_water = 0;
};

Ran run(zeroplan::test::Pipelined step, bool observed) {
  program::derive_order(step.program);
  const program::BlockSizes sizes = program::block_sizes(step.program);
  const std::unique_ptr<Device> device = make_cpu_device({});
  ArenaSize size{sizes.device, sizes.host};
  size.observed = observed;
  Arena arena(*device, step.program, size);
  Interpreter interpreter(step.program, *device, arena, {});
  interpreter.setup();
  const auto fill = [&](program::BufferId buffer, float value) {
    const auto all = interpreter.tensor(buffer, 0).as<float>();
    std::fill(all.begin(), all.end(), value);
  };
  fill(step.count, 0);
  fill(step.one, 1);
  fill(step.sum, 0);
  const std::unique_ptr<BatchSource> batches = seeded_batches({}, 2, 1);
  interpreter.step({}, *batches);
  arena.check_held();
  return {interpreter.tensor(step.sum, 0).as<float>()[63], sizes.device,
          arena.reserved(program::Space::device), arena.high_water().device};
}

}  // namespace

TEST_CASE("one forward, one backward: the oldest micro-batch is given back first, in the same arena") {
  struct Case {
    std::int64_t micro_batches, depth;
  };
  for (const bool observed : {false, true}) {
    for (const Case& of : {Case{7, 3}, {8, 4}, {12, 2}, {4, 4}}) {
      CAPTURE(of.micro_batches);
      CAPTURE(of.depth);
      const Ran ran = run(zeroplan::test::pipelined(of.micro_batches, of.depth, of.depth), observed);
      // 1 + 2 + ... + m, each kept until its backward.
      CHECK(ran.sum == static_cast<float>(of.micro_batches * (of.micro_batches + 1)) / 2);
      CHECK(ran.planned == (4 + of.depth) * 256);
      CHECK(ran.allocated == ran.planned);
      CHECK(ran.high_water == ran.planned);
    }
  }
  // A ring that is too short is found when the step is laid out.
  CHECK_THROWS_AS(run(zeroplan::test::pipelined(7, 3, 2), false), std::logic_error);
}

TEST_CASE("an arena takes back in any order, and says what it cannot place or does not hold") {
  const std::unique_ptr<Device> device = make_cpu_device({});
  program::StepProgram program;
  for (const Bytes bytes : {256, 512, 256, 768}) {
    program::Buffer& buffer = program.buffers.emplace_back();
    buffer.name = "abcd";
    buffer.elements = buffer.bytes = bytes;
    buffer.type = program::DataType::uint8;
  }
  Arena arena(*device, program, {1024 + 256, 0});
  const std::byte* const a = arena.acquire(0, 0).memory;
  const std::byte* const b = arena.acquire(1, 0).memory;
  CHECK(b == a + 256);
  CHECK(arena.acquire(2, 0).memory == a + 768);
  arena.release(0, 0);
  arena.release(1, 0);
  CHECK(arena.acquire(3, 0).memory == a);  // in the gap of both
  CHECK_THROWS_WITH_AS(arena.release(1, 0), "\"abcd\" [0] is released, but it is not held", DeviceError);
  arena.release(3, 0);
  CHECK(arena.acquire(0, 0).memory == a);
  // 512 + 256 bytes are free, but not together.
  CHECK_THROWS_WITH_AS(
      arena.acquire(3, 0),
      "\"abcd\" [0] of 768 bytes finds no place in the 1280 bytes that were laid out: what is held does not "
      "nest, and leaves gaps",
      DeviceError);
}
