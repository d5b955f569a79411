#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/machine.hpp"
#include "runtime/queue.hpp"

namespace {

using zeroplan::emulation::enqueue;
using zeroplan::emulation::Gpu;
using zeroplan::emulation::host;
using zeroplan::emulation::Machine;
using zeroplan::emulation::MachineOptions;
using zeroplan::emulation::Policy;
using zeroplan::emulation::Range;
using zeroplan::emulation::Schedule;

constexpr std::size_t kMiB = std::size_t{1} << 20;

MachineOptions scheduled(Policy policy, std::uint64_t seed = 0) {
  return {.gpus = std::vector<Gpu>(2), .schedule = {policy, seed}, .idle_seconds = 1e3, .stuck_seconds = 0.2};
}

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0) == cudaSuccess);
  return stream;
}

cudaEvent_t new_event() {
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDefault) == cudaSuccess);
  return event;
}

float* new_floats(std::size_t count) {
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, count * sizeof(float)) == cudaSuccess);
  return static_cast<float*>(memory);
}

// y = x + 1, one element each.
cudaError_t add_one(float* y, const float* x, cudaStream_t stream, const char* name = "add_one") {
  const std::array<Range, 2> ranges{Range{x, sizeof(float), true, false},
                                    Range{y, sizeof(float), false, true}};
  return enqueue(stream, name, ranges, [y = host(y), x = host(x)] { *y = *x + 1; });
}

void set(float* x, float value, cudaStream_t stream) {
  CHECK(cudaMemcpyAsync(x, &value, sizeof(float), cudaMemcpyHostToDevice, stream) == cudaSuccess);
}

float get(const float* x, cudaStream_t stream) {
  float value = 0;
  CHECK(cudaMemcpyAsync(&value, x, sizeof(float), cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  return value;
}

bool any_contains(const std::vector<std::string>& texts, const std::string& part) {
  return std::any_of(texts.begin(), texts.end(),
                     [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

// Two streams: the second adds one to what the first made. Returns what comes out.
float two_streams(bool with_event) {
  const cudaStream_t first = new_stream(), second = new_stream();
  const cudaEvent_t event = new_event();
  float* x = new_floats(3);
  set(x, 1, first);
  CHECK(add_one(x + 1, x, first, "producer") == cudaSuccess);
  CHECK(cudaEventRecord(event, first) == cudaSuccess);
  if (with_event) CHECK(cudaStreamWaitEvent(second, event, 0) == cudaSuccess);
  CHECK(add_one(x + 2, x + 1, second, "consumer") == cudaSuccess);
  const float result = get(x + 2, second);
  CHECK(cudaFree(x) == cudaSuccess);
  CHECK(cudaStreamDestroy(first) == cudaSuccess);
  CHECK(cudaStreamDestroy(second) == cudaSuccess);
  CHECK(cudaEventDestroy(event) == cudaSuccess);
  return result;
}

TEST_CASE("new device memory is NaN, is counted in granules and ends at its capacity") {
  const Machine machine({.gpus = {Gpu{.capacity = 64 * kMiB, .context_bytes = 8 * kMiB}}});
  std::size_t free = 0, total = 0;
  CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(total == 64 * kMiB);
  CHECK(free == 56 * kMiB);
  float* memory = new_floats(8);
  CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(free == 54 * kMiB);
  for (std::size_t i = 0; i < 8; ++i) CHECK(std::isnan(get(memory + i, nullptr)));
  void* rest = nullptr;
  CHECK(cudaMalloc(&rest, 54 * kMiB + 1) == cudaErrorMemoryAllocation);
  CHECK(rest == nullptr);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(cudaMalloc(&rest, 54 * kMiB) == cudaSuccess);
  CHECK(cudaFree(rest) == cudaSuccess);
  CHECK(cudaFree(memory) == cudaSuccess);
  CHECK(machine.problems().empty());
  CHECK(machine.leaks().empty());
}

TEST_CASE("the host cannot read device memory, and nobody what is behind it or was freed") {
  const Machine machine;
  float* memory = new_floats(2 * kMiB / sizeof(float));
  const auto dies = [](const volatile float* where) {
    const pid_t child = fork();
    if (child == 0) {
      (void)std::signal(SIGSEGV, SIG_DFL);
      const float value = *where;
      _exit(value == 0 ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
  };
  CHECK(dies(memory));
  CHECK_FALSE(dies(host(memory)));
  CHECK(dies(host(memory) + 2 * kMiB / sizeof(float)));
  CHECK(dies(host(memory) - 1));
  CHECK(cudaFree(memory) == cudaSuccess);
  CHECK(dies(host(memory)));
}

TEST_CASE("sparse memory of a TiB's half touches few pages") {
  const Machine machine({.gpus = {Gpu{.capacity = std::size_t{1} << 40}}});
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, std::size_t{1} << 39) == cudaSuccess);
  float* last = static_cast<float*>(memory) + (std::size_t{1} << 37) - 1;
  set(last, 3, nullptr);
  CHECK(get(last, nullptr) == 3);
  CHECK(cudaFree(memory) == cudaSuccess);
}

TEST_CASE("nothing runs when it is queued") {
  const Machine machine(scheduled(Policy::in_order));
  const cudaStream_t stream = new_stream();
  float* x = new_floats(2);
  bool ran = false;
  CHECK(enqueue(stream, "note", {}, [&] { ran = true; }) == cudaSuccess);
  CHECK_FALSE(ran);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(ran);
  CHECK(cudaFree(x) == cudaSuccess);
}

TEST_CASE("a host that has gone quiet is worked for") {
  const Machine machine({.schedule = {Policy::late, 0}});
  std::atomic<bool> ran = false;
  CHECK(enqueue(nullptr, "note", {}, [&] { ran = true; }) == cudaSuccess);
  for (int i = 0; i < 1000 && !ran; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(ran);
}

TEST_CASE("with an event the result is right under every schedule") {
  std::vector<Schedule> schedules{{Policy::in_order, 0}, {Policy::late, 0}};
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    schedules.push_back({Policy::priority, seed});
    schedules.push_back({Policy::random, seed});
  }
  for (const Schedule& schedule : schedules) {
    CAPTURE(schedule.seed);
    const Machine machine(scheduled(schedule.policy, schedule.seed));
    CHECK(two_streams(true) == 3);
    CHECK(machine.problems().empty());
    CHECK(machine.leaks().empty());
  }
}

TEST_CASE("without the event the clocks say so under every schedule, and a late one gives NaN") {
  for (const Policy policy : {Policy::in_order, Policy::late, Policy::random}) {
    const Machine machine(scheduled(policy));
    const float result = two_streams(false);
    if (policy == Policy::in_order) CHECK(result == 3);
    if (policy == Policy::late) CHECK(std::isnan(result));
    REQUIRE(machine.problems().size() == 1);
    CHECK(machine.problems()[0].find("producer on stream 0 and consumer on stream 1") != std::string::npos);
  }
}

TEST_CASE("clocks find a write after a read, and see waits of the host") {
  const Machine machine(scheduled(Policy::in_order));
  const cudaStream_t first = new_stream(), second = new_stream();
  float* x = new_floats(3);
  set(x, 1, first);
  CHECK(cudaStreamSynchronize(first) == cudaSuccess);
  CHECK(add_one(x + 1, x, first, "reader") == cudaSuccess);
  CHECK(machine.problems().empty());
  CHECK(add_one(x, x + 2, second, "writer") == cudaSuccess);
  REQUIRE(machine.problems().size() == 1);
  CHECK(machine.problems()[0].find("reader on stream 0 and writer on stream 1") != std::string::npos);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(add_one(x + 1, x, second) == cudaSuccess);  // the host has waited for both
  CHECK(machine.problems().size() == 1);
}

TEST_CASE("a priority runs one stream before all others") {
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const Machine machine(scheduled(Policy::priority, seed));
    std::string order;
    for (const char name : {'a', 'b', 'c'}) {
      const cudaStream_t stream = new_stream();
      for (int i = 0; i < 2; ++i)
        CHECK(enqueue(stream, "letter", {}, [&, name] { order += name; }) == cudaSuccess);
    }
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    orders.insert(order);
  }
  CHECK(orders == std::set<std::string>{"aabbcc", "aaccbb", "bbaacc", "bbccaa", "ccaabb", "ccbbaa"});
}

TEST_CASE("a seed gives the same random order again") {
  const auto order = [](std::uint64_t seed) {
    const Machine machine(scheduled(Policy::random, seed));
    std::string text;
    for (const char name : {'a', 'b', 'c'}) {
      const cudaStream_t stream = new_stream();
      for (int i = 0; i < 4; ++i)
        CHECK(enqueue(stream, "letter", {}, [&, name] { text += name; }) == cudaSuccess);
    }
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    return text;
  };
  CHECK(order(1) == order(1));
  CHECK(order(1) != order(2));
}

TEST_CASE("memory of the host that is not pinned may change after a copy from it, pinned memory may not") {
  const Machine machine(scheduled(Policy::late));
  const cudaStream_t stream = new_stream();
  float* x = new_floats(2);
  void* pinned = nullptr;
  REQUIRE(cudaHostAlloc(&pinned, sizeof(float), cudaHostAllocDefault) == cudaSuccess);
  float pageable = 1;
  *static_cast<float*>(pinned) = 1;
  CHECK(cudaMemcpyAsync(x, &pageable, sizeof(float), cudaMemcpyHostToDevice, stream) == cudaSuccess);
  CHECK(cudaMemcpyAsync(x + 1, pinned, sizeof(float), cudaMemcpyHostToDevice, stream) == cudaSuccess);
  pageable = 2;
  *static_cast<float*>(pinned) = 2;
  CHECK(get(x, stream) == 1);
  CHECK(get(x + 1, stream) == 2);
  CHECK(cudaMemcpyAsync(x, pinned, sizeof(float), cudaMemcpyDeviceToHost, stream) == cudaErrorInvalidValue);
}

TEST_CASE("events are done when what is before them is, and have times") {
  const Machine machine(scheduled(Policy::late));
  const cudaStream_t stream = new_stream();
  const cudaEvent_t begin = new_event(), end = new_event();
  CHECK(cudaEventQuery(begin) == cudaSuccess);  // never recorded
  CHECK(cudaEventRecord(begin, stream) == cudaSuccess);
  for (int i = 0; i < 3; ++i) {
    CHECK(enqueue(stream, "sleep", {}, [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }) ==
          cudaSuccess);
  }
  CHECK(cudaEventRecord(end, stream) == cudaSuccess);
  float milliseconds = 0;
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end) == cudaErrorNotReady);
  CHECK(cudaEventQuery(end) == cudaErrorNotReady);
  CHECK(cudaEventSynchronize(end) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end) == cudaSuccess);
  CHECK(milliseconds >= 6);
}

TEST_CASE("a graph plays what was captured, with the arguments of that time") {
  for (const Policy policy : {Policy::in_order, Policy::late, Policy::random}) {
    const Machine machine(scheduled(policy, 3));
    const cudaStream_t first = new_stream(), second = new_stream();
    const cudaEvent_t fork = new_event(), join = new_event();
    float* x = new_floats(3);
    float step = 1;
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(add_one(x + 1, x, first) == cudaSuccess);
    CHECK(cudaEventRecord(fork, first) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(second, fork, 0) == cudaSuccess);
    const std::array<Range, 1> range{Range{x + 2, sizeof(float), false, true}};
    CHECK(enqueue(second, "by_value", range, [y = host(x + 2), step] { *y = step; }) == cudaSuccess);
    CHECK(cudaEventRecord(join, second) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(first, join, 0) == cudaSuccess);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(first, &graph) == cudaSuccess);
    cudaGraphExec_t exec = nullptr;
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(std::isnan(get(x + 1, first)));  // nothing ran while it was captured
    for (step = 5; step < 8; ++step) {
      set(x, step, first);
      CHECK(cudaGraphLaunch(exec, first) == cudaSuccess);
      CHECK(get(x + 1, first) == step + 1);
      CHECK(get(x + 2, first) == 1);  // the step that was captured
    }
    CHECK(machine.problems().empty());
    CHECK(any_contains(machine.leaks(), "graph"));
    CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
    CHECK_FALSE(any_contains(machine.leaks(), "graph"));
  }
}

TEST_CASE("captures refuse waits, unjoined streams and events from outside") {
  const Machine machine(scheduled(Policy::in_order));
  const cudaStream_t first = new_stream(), second = new_stream();
  const cudaEvent_t fork = new_event(), outside = new_event();
  cudaGraph_t graph = nullptr;
  CHECK(cudaEventRecord(outside, second) == cudaSuccess);

  CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK(cudaStreamSynchronize(first) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(first, &graph) == cudaErrorStreamCaptureInvalidated);

  CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 1) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaEventRecord(fork, first) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(second, fork, 0) == cudaSuccess);
  CHECK(enqueue(second, "left", {}, [] {}) == cudaSuccess);
  CHECK(cudaStreamEndCapture(first, &graph) == cudaErrorStreamCaptureUnjoined);

  CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(first, outside, 0) == cudaErrorStreamCaptureIsolation);
  CHECK(cudaStreamEndCapture(first, &graph) == cudaErrorStreamCaptureInvalidated);
  CHECK(graph == nullptr);
}

TEST_CASE("a call can be made to fail, once") {
  Machine machine(scheduled(Policy::in_order));
  machine.fail_call("cudaMalloc", 2, cudaErrorMemoryAllocation);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 1) == cudaSuccess);
  CHECK(cudaMalloc(&memory, 1) == cudaErrorMemoryAllocation);
  CHECK(cudaMalloc(&memory, 1) == cudaSuccess);
}

TEST_CASE("an operation that fails is a sticky error of its device, seen at a later call") {
  Machine machine(scheduled(Policy::in_order));
  machine.fail_operation("add_one", 2, cudaErrorIllegalAddress);
  const cudaStream_t stream = new_stream();
  float* x = new_floats(4);
  set(x, 1, stream);
  for (int i = 0; i < 3; ++i) CHECK(add_one(x + i + 1, x + i, stream) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
  CHECK(add_one(x + 1, x, stream) == cudaErrorIllegalAddress);
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  CHECK(machine.history() == std::vector<std::string>{"0 cudaMemcpyAsync", "0 add_one", "0 add_one"});
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  CHECK(cudaSetDevice(1) == cudaErrorIllegalAddress);
}

TEST_CASE("memory that is none, exceptions and work that never runs are problems") {
  SUBCASE("beyond an allocation") {
    const Machine machine(scheduled(Policy::in_order));
    float* x = new_floats(2);
    CHECK(add_one(x + 2, x, nullptr) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    CHECK(any_contains(machine.problems(), "add_one touches 4 bytes"));
  }
  SUBCASE("an exception") {
    const Machine machine(scheduled(Policy::in_order));
    CHECK(enqueue(nullptr, "thrower", {}, [] { throw std::runtime_error("lane 3 waits"); }) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
    CHECK(any_contains(machine.problems(), "thrower threw: lane 3 waits"));
  }
  SUBCASE("never ready") {
    const Machine machine(scheduled(Policy::in_order));
    CHECK(enqueue(
              nullptr, "gather", {}, [] {}, [] { return false; }) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaErrorLaunchTimeout);
    CHECK(any_contains(machine.problems(), "is not ready for gather"));
  }
  SUBCASE("the runtime in a function of the host") {
    const Machine machine(scheduled(Policy::in_order));
    CHECK(cudaLaunchHostFunc(
              nullptr, [](void*) { (void)cudaDeviceSynchronize(); }, nullptr) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(any_contains(machine.problems(), "cudaLaunchHostFunc"));
  }
}

TEST_CASE("what several devices must come to runs when all have") {
  for (const Policy policy : {Policy::in_order, Policy::late, Policy::random}) {
    const Machine machine(scheduled(policy));
    std::set<int> arrived;  // guarded by the emulation
    std::vector<std::thread> ranks;
    ranks.reserve(2);
    std::array<cudaError_t, 2> ends{};
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        (void)cudaSetDevice(rank);
        (void)enqueue(
            nullptr, "meet", {}, [] {},
            [&, rank] {
              arrived.insert(rank);
              return arrived.size() == 2;
            });
        ends[static_cast<std::size_t>(rank)] = cudaDeviceSynchronize();
      });
    }
    for (std::thread& rank : ranks) rank.join();
    CHECK(ends == std::array{cudaSuccess, cudaSuccess});
    CHECK(machine.problems().empty());
  }
}

TEST_CASE("what is left is told") {
  const Machine machine(scheduled(Policy::in_order));
  (void)new_floats(3);
  (void)new_stream();
  (void)new_event();
  const std::vector<std::string> leaks = machine.leaks();
  CHECK(any_contains(leaks, "12 bytes of device memory of device 0"));
  CHECK(any_contains(leaks, "stream"));
  CHECK(any_contains(leaks, "1 events"));
}

TEST_CASE("without a driver or a GPU every call says so") {
  const Machine machine({.driver = cudaErrorInsufficientDriver});
  int count = 0;
  CHECK(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver);
  CHECK(std::string(cudaGetErrorString(cudaErrorInsufficientDriver)) ==
        "CUDA driver version is insufficient for CUDA runtime version");
}

}  // namespace
