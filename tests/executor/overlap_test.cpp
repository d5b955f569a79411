#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "executor/device/cpu/cpu_device.hpp"
#include "executor/device/cpu/streams.hpp"
#include "executor/error.hpp"
#include "tests/executor/training_support.hpp"
#include "tests/executor/wrapped_communicator.hpp"

// Streams of a processor: what runs beside the kernels, and in which order.

using namespace zeroplan;
using namespace zeroplan::executor;
using program::Op;
using program::Stream;

namespace {

// A door that somebody opens, or not within a time that is far above what a loaded machine needs.
class Door {
 public:
  void open() {
    {
      const std::lock_guard lock(mutex_);
      is_open_ = true;
    }
    opened_.notify_all();
  }
  bool wait() {
    std::unique_lock lock(mutex_);
    return opened_.wait_for(lock, std::chrono::seconds(20), [this] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool is_open_ = false;
};

// Streams that are given functions.
class Running {
 public:
  void run(Stream stream, std::function<void()> work) {
    const auto call = [](void*, const void* what) { (*static_cast<const std::function<void()>*>(what))(); };
    streams.run(stream, {call, nullptr, &works_.emplace_back(std::move(work))}, {});
  }
  Device::Event record(Stream stream) {
    const Device::Event event = streams.make_event();
    streams.record(event, stream);
    return event;
  }
  void wait(Stream stream, Device::Event event) { streams.wait(stream, event, nullptr); }
  void synchronize() { streams.synchronize(); }
  void drain() { streams.drain(); }

 private:
  std::deque<std::function<void()>> works_;

 public:
  cpu::Streams streams;  // ends before what its work uses
};

}  // namespace

TEST_CASE("streams: each runs its own in order, and beside the others") {
  Running streams;
  Door reached, free;
  std::vector<int> order;  // of the communication stream's thread
  bool beside = false;
  streams.run(Stream::communication, [&] {
    reached.open();
    beside = free.wait();
    order.push_back(1);
  });
  streams.run(Stream::communication, [&] { order.push_back(2); });
  CHECK(reached.wait());
  free.open();  // only now may the first end: the issuing thread is not held by it
  streams.synchronize();
  CHECK(beside);
  CHECK(order == std::vector<int>{1, 2});
}

TEST_CASE("streams: more work than may wait runs whole and in order, whatever it waits for") {
  constexpr int kWorks = 5000;
  Running streams;
  std::vector<int> order;
  int copied = 0;
  streams.run(Stream::communication, [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  for (int i = 0; i < kWorks; ++i) {
    streams.run(Stream::communication, [&, i] { order.push_back(i); });
    streams.wait(Stream::to_host, streams.record(Stream::communication));
    streams.run(Stream::to_host, [&] { ++copied; });
  }
  streams.synchronize();
  std::vector<int> expected(kWorks);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(order == expected);
  CHECK(copied == kWorks);
}

TEST_CASE("streams: a wait holds back what follows on its stream until the event has happened") {
  Running streams;
  for (int repeat = 0; repeat < 200; ++repeat) {
    std::atomic<int> count = 0;
    int seen_by_copy = 0, seen_by_kernel = 0;
    streams.run(Stream::communication, [&] { ++count; });
    const Device::Event first = streams.record(Stream::communication);
    streams.run(Stream::communication, [&] { ++count; });
    const Device::Event second = streams.record(Stream::communication);
    streams.wait(Stream::to_host, first);
    streams.run(Stream::to_host, [&] { seen_by_copy = count; });
    streams.wait(Stream::compute, second);
    streams.run(Stream::compute, [&] { seen_by_kernel = count; });
    streams.synchronize();
    CHECK(seen_by_copy >= 1);
    CHECK(seen_by_kernel == 2);
  }
}

TEST_CASE("streams: whoever watches work is told what it took, which was done last and which failed first") {
  Running running;
  cpu::Streams& streams = running.streams;
  Progress progress;
  std::array<float, 3> seconds{};
  const auto sleep = [](void*, const void*) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  const auto fail = [](void*, const void*) { throw DeviceError("broken"); };
  const auto finished = [&](Stream stream) {
    return progress.finished[static_cast<std::size_t>(stream)].load();
  };
  streams.run(Stream::communication, {sleep, nullptr, nullptr}, {seconds.data(), &progress, 7});
  streams.run(Stream::compute, {sleep, nullptr, nullptr}, {&seconds[1], &progress, 8});
  double held = 0;
  const Device::Event event = running.record(Stream::communication);
  streams.run(Stream::to_host, {sleep, nullptr, nullptr}, {});
  const Device::Event copied = running.record(Stream::to_host);
  streams.wait(Stream::compute, copied, &held);
  streams.wait(Stream::compute, event, nullptr);
  CHECK(seconds[0] >= 0.02F);
  CHECK(seconds[1] >= 0.02F);
  CHECK(held > 0);
  CHECK(finished(Stream::communication) == 7);
  CHECK(finished(Stream::compute) == 8);
  streams.run(Stream::communication, {fail, nullptr, nullptr}, {&seconds[2], &progress, 9});
  streams.run(Stream::communication, {sleep, nullptr, nullptr}, {&seconds[2], &progress, 10});
  CHECK_THROWS_AS(streams.synchronize(), DeviceError);
  CHECK(progress.failed == 9);
  CHECK(finished(Stream::communication) == 7);
  CHECK(seconds[2] == 0);
}

TEST_CASE("streams: what work throws comes out of the next wait, and what follows is passed over") {
  Running streams;
  bool ran = false;
  streams.run(Stream::communication, [] { throw CommunicationError("lost"); });
  streams.run(Stream::communication, [&] { ran = true; });
  CHECK_THROWS_WITH_AS(streams.wait(Stream::compute, streams.record(Stream::communication)), "lost",
                       CommunicationError);
  streams.drain();
  CHECK_FALSE(ran);
  CHECK_THROWS_AS(streams.synchronize(), CommunicationError);
}

// The second reduction of a step, which is the last layer's (the first is the final norm's), goes on only when a kernel of
// the layer before has run, so the step ends in time only if the two overlap.
TEST_CASE("overlap: a layer's gradients are reduced beside the backward of the layer before it") {
  for (const int stage : {0, 2, 3}) {
    CAPTURE(stage);
    describe::Plan plan = test::fp32_plan();
    plan.data_parallel = 2;
    plan.zero_stage = stage;
    std::array<Door, 2> doors;
    std::atomic<int> beside = 0;
    std::array<std::atomic<int>, 2> asked{};
    test::TrainingOptions options;
    options.device = [&](std::int64_t rank) {
      return test::hooked_device(make_cpu_device({}),
                                 [&doors, rank](const Kernel& kernel) {
                                   if (kernel.op == Op::attention_backward && kernel.layer == 1)
                                     doors[static_cast<std::size_t>(rank)].open();
                                 },
                                 {});
    };
    options.world = [&](Communicator& world) -> std::unique_ptr<Communicator> {
      const auto rank = static_cast<std::size_t>(world.rank());
      return std::make_unique<test::WrappedCommunicator>(
          world, test::Around{.before = [&, rank, stage](const auto&, Op op, const Tensor&) {
            const bool reduces = op == (stage == 0 ? Op::all_reduce : Op::reduce_scatter);
            if (!reduces || ++asked[rank] != 2) return;
            if (doors[rank].wait()) ++beside;
          }});
    };
    (void)test::train(test::tiny_gpt(), plan, options);
    CHECK(beside == 2);
  }
}

TEST_CASE("overlap: without it nothing of the traffic runs beside kernels") {
  describe::Plan plan = test::fp32_plan();
  plan.data_parallel = 2;
  plan.zero_stage = 3;
  plan.overlap = false;
  std::array<std::atomic<bool>, 2> in_collective{};
  std::atomic<int> beside = 0;
  test::TrainingOptions options;
  options.device = [&](std::int64_t rank) {
    return test::hooked_device(make_cpu_device({}),
                               [&, rank](const Kernel&) {
                                 if (in_collective[static_cast<std::size_t>(rank)]) ++beside;
                               },
                               {});
  };
  options.world = [&](Communicator& world) -> std::unique_ptr<Communicator> {
    const auto rank = static_cast<std::size_t>(world.rank());
    return std::make_unique<test::WrappedCommunicator>(
        world,
        test::Around{.before = [&, rank](const auto&, Op, const Tensor&) { in_collective[rank] = true; },
                     .after = [&, rank](const auto&, Op, const Tensor&) { in_collective[rank] = false; }});
  };
  (void)test::train(test::tiny_gpt(), plan, options);
  CHECK(beside == 0);
}

// Its own collectives are under way then, and the other rank's wait for ones that it will not issue.
TEST_CASE("overlap: a kernel that fails on one rank ends the run with its reason") {
  for (const Op failing : {Op::attention_backward, Op::accumulate, Op::norm_forward}) {
    CAPTURE(program::name_of(failing));
    describe::Plan plan = test::fp32_plan();
    plan.data_parallel = 2;
    plan.zero_stage = 3;
    test::TrainingOptions options;
    options.steps = 3;
    std::atomic<int> calls = 0;
    options.device = [&](std::int64_t rank) {
      return test::hooked_device(make_cpu_device({}),
                                 [&, rank](const Kernel& kernel) {
                                   if (rank == 1 && kernel.op == failing && ++calls == 5)
                                     throw DeviceError("this one broke");
                                 },
                                 {});
    };
    const auto start = std::chrono::steady_clock::now();
    std::string reason;
    try {
      (void)test::train(test::tiny_gpt(), plan, options);
    } catch (const std::exception& error) {
      reason = error.what();
    }
    CHECK(reason.find("this one broke") != std::string::npos);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
  }
}
