#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "executor/device/cpu/cpu_device.hpp"
#include "executor/device/cuda/cuda_device.hpp"
#include "executor/error.hpp"
#include "executor/step_scalars.hpp"
#include "runtime/machine.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;
using emulation::Gpu;
using emulation::Machine;
using emulation::MachineOptions;
using emulation::Policy;
using emulation::Schedule;
using program::DataType;
using program::Op;
using program::Space;
using program::Stream;

namespace {

const std::vector<Schedule> kSchedules{{Policy::in_order, 0},    {Policy::late, 0},   {Policy::priority, 0},
                                       {Policy::priority, 4321}, {Policy::random, 1}, {Policy::random, 2}};

MachineOptions scheduled(const Schedule& schedule) {
  return {.gpus = std::vector<Gpu>(2), .schedule = schedule, .idle_seconds = 1e3, .stuck_seconds = 60};
}

// A device with blocks of both kinds.
struct Bench {
  explicit Bench(int ordinal = 0, Elements elements = 4096)
      : count(elements), device(make_cuda_device({.ordinal = ordinal, .threads = 1})) {
    block = device->allocate(4 * bytes(), Space::device);
    host_block = device->allocate(4 * bytes(), Space::host);
  }
  ~Bench() {
    device->drain();
    device->deallocate(block, 4 * bytes(), Space::device);
    device->deallocate(host_block, 4 * bytes(), Space::host);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  Bytes bytes() const { return count * 4; }
  // The i-th of four.
  Tensor vector(Elements i) const { return {block + i * bytes(), DataType::fp32, count}; }
  Tensor host_vector(Elements i) const { return {host_block + i * bytes(), DataType::fp32, count}; }
  Tensor scalars() const { return {block, DataType::fp32, program::kScalars}; }

  void upload(const Tensor& to, const std::vector<float>& values, Stream stream = Stream::compute) const {
    device->upload(to.data, std::as_bytes(std::span(values)), stream);
  }
  std::vector<float> download(const Tensor& from) const {
    std::vector<float> values(static_cast<std::size_t>(from.elements));
    device->download(std::as_writable_bytes(std::span(values)), from.data);
    return values;
  }
  // What is issued must stay where it is.
  void run(Op op, std::array<Tensor, program::kMaxOperands> operands, Stream stream = Stream::compute,
           const Watch& watch = {}) {
    auto kernel = std::make_unique<Kernel>();
    kernel->op = op;
    kernel->dims = {operands[0].elements};
    kernel->operands = operands;
    device->execute(*kernels.emplace_back(std::move(kernel)), stream, watch);
  }

  Elements count;
  std::unique_ptr<Device> device;
  std::byte* block = nullptr;
  std::byte* host_block = nullptr;
  std::vector<std::unique_ptr<Kernel>> kernels;
};

std::vector<float> counting(Elements count, float first = 0) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

void sleep_some(void*, const void*) { std::this_thread::sleep_for(std::chrono::milliseconds(3)); }
void throw_logic(void*, const void*) { throw std::logic_error("a rank is lost"); }
void count_up(void* self, const void*) { ++*static_cast<int*>(self); }

std::string message_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE(
    "cuda device: what is uploaded comes back, in pieces of any size, and the source may change at once") {
  for (const Schedule& schedule : kSchedules) {
    const Machine machine(scheduled(schedule));
    for (const Elements count : {1, 3, 1000, 1'500'000}) {
      const Bench bench(0, count);
      std::vector<float> values = counting(count);
      bench.upload(bench.vector(0), values);
      bench.upload(bench.host_vector(1), values, Stream::to_host);
      std::fill(values.begin(), values.end(), -1.0F);
      for (Elements i = 0; i < std::min<Elements>(count, 300); ++i) {  // many small ones
        bench.device->upload(bench.vector(2).data + 4 * i, std::as_bytes(std::span(values).first(1)),
                             Stream::input);
      }
      CHECK(bench.download(bench.vector(0)) == counting(count));
      CHECK(bench.download(bench.host_vector(1)) == counting(count));
      CHECK(bench.download(bench.vector(2))[0] == -1);
    }
    CHECK(machine.problems().empty());
    CHECK(machine.leaks().empty());
  }
}

TEST_CASE("cuda device: events order streams, and without one the clocks tell") {
  int wrong = 0;
  for (const Schedule& schedule : kSchedules) {
    for (const bool with_event : {true, false}) {
      const Machine machine(scheduled(schedule));
      Bench bench;
      const Device::Event event = bench.device->make_event();
      bench.device->wait(Stream::to_host, event, nullptr);  // never recorded: holds nothing
      bench.upload(bench.vector(0), counting(bench.count));
      bench.run(Op::copy, {bench.vector(0), bench.vector(1)});
      bench.device->record(event, Stream::compute);
      if (with_event) bench.device->wait(Stream::to_host, event, nullptr);
      bench.run(Op::copy_to_host, {bench.vector(1), bench.host_vector(0)}, Stream::to_host);
      bench.device->synchronize();
      const bool right = bench.download(bench.host_vector(0)) == counting(bench.count);
      if (with_event) CHECK(right);
      CHECK(machine.problems().empty() == with_event);
      wrong += right ? 0 : 1;
    }
  }
  CHECK(wrong > 0);
}

TEST_CASE("cuda device: work of the host runs in its stream's order, and what it throws comes out") {
  for (const Schedule& schedule : kSchedules) {
    const Machine machine(scheduled(schedule));
    Bench bench;
    int calls = 0;
    bench.run(Op::fill_zero, {bench.vector(0)});
    bench.device->run_on_host(Stream::communication, {count_up, &calls, nullptr}, {});
    bench.device->synchronize();
    CHECK(calls == 1);
    bench.device->run_on_host(Stream::communication, {throw_logic, nullptr, nullptr}, {});
    bench.device->run_on_host(Stream::communication, {count_up, &calls, nullptr}, {});
    CHECK_THROWS_WITH_AS(bench.device->synchronize(), "a rank is lost", std::logic_error);
    CHECK(calls == 1);
    CHECK_THROWS_AS(bench.run(Op::fill_zero, {bench.vector(0)}), std::logic_error);
    bench.device->drain();
    CHECK(machine.problems().empty());
  }
}

TEST_CASE("cuda device: who watches is told how long it took, how far it came and what was held") {
  for (const Schedule& schedule : kSchedules) {
    const Machine machine(scheduled(schedule));
    Bench bench;
    Progress progress;
    std::array<float, 4> seconds{};
    double held = 0;
    const Device::Event event = bench.device->make_event();
    bench.device->run_on_host(Stream::communication, {sleep_some, nullptr, nullptr},
                              {seconds.data(), &progress, 11});
    bench.device->record(event, Stream::communication);
    bench.run(Op::fill_zero, {bench.vector(0)}, Stream::compute, {&seconds[1], &progress, 21});
    bench.device->wait(Stream::compute, event, &held);
    bench.run(Op::fill_zero, {bench.vector(0)}, Stream::compute, {&seconds[2], &progress, 22});
    bench.device->run_on_host(Stream::compute, {sleep_some, nullptr, nullptr}, {&seconds[3], &progress, 23});
    bench.device->synchronize();
    CHECK(seconds[0] >= 0.003F);
    CHECK(seconds[1] > 0);
    CHECK(seconds[2] > 0);
    CHECK(seconds[3] >= 0.003F);
    // In another order the other stream is done before this one comes to its wait.
    if (schedule.policy == Policy::late) CHECK(held >= 0.003);
    CHECK(progress.finished[static_cast<std::size_t>(Stream::communication)] == 11);
    CHECK(progress.finished[static_cast<std::size_t>(Stream::compute)] == 23);
    CHECK(progress.failed == 0);
  }
}

TEST_CASE("cuda device: an error that is reported late says what was reported, and where") {
  Machine machine(scheduled({Policy::in_order, 0}));
  Bench bench;
  Progress progress;
  for (std::uint64_t number = 1; number <= 4; ++number)
    bench.run(Op::accumulate, {bench.vector(0), bench.vector(1)}, Stream::compute,
              {nullptr, &progress, number});
  bench.device->synchronize();
  const std::vector<std::string> history = machine.history();
  const std::string kernel = history.back().substr(2);
  machine.fail_operation(kernel, 3, cudaErrorIllegalAddress);
  for (std::uint64_t number = 11; number <= 14; ++number)
    bench.run(Op::accumulate, {bench.vector(0), bench.vector(1)}, Stream::compute,
              {nullptr, &progress, number});
  const std::string message = message_of([&] { bench.device->synchronize(); });
  CHECK(contains(message, "an illegal memory access was encountered (cudaErrorIllegalAddress)"));
  CHECK(progress.finished[0] == 12);
  CHECK(progress.failed == 13);
  CHECK_THROWS_AS(bench.run(Op::fill_zero, {bench.vector(0)}), DeviceError);
  bench.device->drain();
}

TEST_CASE("cuda device: memory that is not there is refused with its size, and nothing is left") {
  Machine machine({.gpus = {Gpu{.capacity = Bytes{1} << 30}}});
  {
    const std::unique_ptr<Device> device = make_cuda_device({});
    const std::string message = message_of([&] { (void)device->allocate(Bytes{2} << 30, Space::device); });
    CHECK(contains(message, "2147483648 bytes"));
    CHECK(contains(message, "of the GPU's 1073741824 bytes are free"));
    CHECK_THROWS_AS((void)device->allocate(-1, Space::device), DeviceError);
    machine.fail_call("cudaHostAlloc", 1, cudaErrorMemoryAllocation);
    CHECK(contains(message_of([&] { (void)device->allocate(4096, Space::host); }), "cannot pin 4096 bytes"));
    std::byte* nothing = device->allocate(0, Space::device);
    device->deallocate(nothing, 0, Space::device);
  }
  CHECK(machine.leaks().empty());
  for (const char* call : {"cudaStreamCreateWithPriority", "cudaHostAlloc", "cudaEventCreateWithFlags"}) {
    for (const int n : {1, 2, 3}) {
      machine.fail_call(call, n, cudaErrorMemoryAllocation);
      try {
        (void)make_cuda_device({});
      } catch (const DeviceError&) {
        CHECK(machine.leaks().empty());
      }
    }
  }
  CHECK(machine.leaks().empty());
  CHECK(machine.problems().empty());
}

TEST_CASE("cuda device: what this machine does not have is not possible, with what to do") {
  const auto refusal = [](const MachineOptions& options, int ordinal) {
    const Machine machine(options);
    try {
      (void)make_cuda_device({.ordinal = ordinal});
    } catch (const NotPossible& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(contains(refusal({.driver = cudaErrorInsufficientDriver}, 0), "nvidia-smi"));
  CHECK(contains(refusal({.driver = cudaErrorNoDevice}, 0), "CUDA finds no GPU"));
  CHECK(contains(refusal({.gpus = std::vector<Gpu>(2)}, 2), "there is no GPU 2: CUDA finds 2"));
  CHECK(contains(refusal({.gpus = {Gpu{.sm = 70}}}, 0), "compute capability 7.0"));
  CHECK(refusal({.gpus = {Gpu{.sm = 80}}}, 0).empty());
}

TEST_CASE("cuda device: a device is its own GPU whatever its thread's is") {
  const Machine machine(scheduled({Policy::random, 5}));
  Bench first(0), second(1);
  first.upload(first.vector(0), counting(first.count));
  second.upload(second.vector(0), counting(second.count, 7));
  first.run(Op::accumulate, {first.vector(0), first.vector(0)});
  second.run(Op::copy, {second.vector(0), second.vector(1)});
  first.device->synchronize();
  second.device->synchronize();
  CHECK(first.download(first.vector(0))[3] == 6);
  CHECK(second.download(second.vector(1)) == counting(second.count, 7));
  CHECK(contains(second.device->name(), "cuda:1"));
  CHECK(machine.problems().empty());
}

TEST_CASE("cuda device: instructions on offloaded states run on the host, with the CPU device's bits") {
  const auto values = [](Device& device, std::byte* scalars_at, std::byte* at, bool on_host) {
    const Elements count = 1003;
    const auto tensor = [&](Elements i) { return Tensor{at + i * 4096, DataType::fp32, count}; };
    const Tensor scalars{scalars_at, DataType::fp32, program::kScalars};
    std::vector<float> numbers(static_cast<std::size_t>(program::kScalars), 0.0F);
    numbers[static_cast<std::size_t>(program::Scalar::loss_scale)] = 1;
    numbers[static_cast<std::size_t>(kGradientScale)] = 1;
    StepSettings settings;
    settings.learning_rate = 0.01F;
    const StepScalars step = step_scalars_of(settings);
    std::copy(step.begin(), step.end(), numbers.begin() + kFirstStepScalar);
    device.upload(scalars.data, std::as_bytes(std::span(numbers)), Stream::compute);
    for (Elements i = 0; i < 4; ++i) {
      const std::vector<float> some = counting(count, 0.01F * static_cast<float>(i + 1));
      device.upload(tensor(i).data, std::as_bytes(std::span(some)), Stream::compute);
    }
    device.synchronize();
    Kernel norm;
    norm.op = Op::gradient_norm;
    norm.dims = {count, count};
    norm.operands = {tensor(0), scalars};
    Kernel update;
    update.op = Op::optimizer_update;
    update.dims = {count, count};
    update.operands = {tensor(0), {}, tensor(1), tensor(2), tensor(3)};
    update.settings = &settings;
    update.scalars = scalars;
    device.execute(norm, Stream::host, {});
    device.execute(update, Stream::host, {});
    device.synchronize();
    std::vector<float> out(static_cast<std::size_t>(count));
    device.download(std::as_writable_bytes(std::span(out)), tensor(1).data);
    std::vector<float> parts(static_cast<std::size_t>(program::kScalars));
    device.download(std::as_writable_bytes(std::span(parts)), scalars.data);
    out.insert(out.end(), parts.begin(), parts.end());
    if (on_host) CHECK(device.product_flops() == 0);
    return out;
  };
  for (const Schedule& schedule : kSchedules) {
    const Machine machine(scheduled(schedule));
    const Bench bench;
    const std::unique_ptr<Device> cpu = make_cpu_device({});
    std::byte* memory = cpu->allocate(8 * 4096, Space::device);
    const std::vector<float> want = values(*cpu, memory, memory + 4096, false);
    cpu->deallocate(memory, 8 * 4096, Space::device);
    CHECK(values(*bench.device, bench.block, bench.host_block, true) == want);
    const std::vector<std::string> history = machine.history();
    CHECK(std::count(history.begin(), history.end(), "0 cudaLaunchHostFunc") == 2);
    CHECK(machine.problems().empty());
  }
}

TEST_CASE("cuda device: what is recorded runs when it is replayed, each time, with the memory of then") {
  for (const Schedule& schedule : kSchedules) {
    CAPTURE(schedule.seed);
    const Machine machine(scheduled(schedule));
    {
      Bench bench;
      bench.upload(bench.vector(0), std::vector<float>(4096, 1));
      bench.upload(bench.vector(1), std::vector<float>(4096, 0));
      bench.device->synchronize();
      bench.device->begin_recording(Stream::compute);
      bench.run(Op::accumulate, {bench.vector(0), bench.vector(1)});
      bench.run(Op::accumulate, {bench.vector(0), bench.vector(1)});
      const Device::Recording recording = bench.device->end_recording();
      bench.device->synchronize();
      CHECK(bench.download(bench.vector(1)) == std::vector<float>(4096, 0));
      bench.upload(bench.vector(0), std::vector<float>(4096, 3));
      float seconds = -1;
      Progress progress;
      bench.device->replay(recording, Stream::compute, {&seconds, &progress, 17});
      bench.device->replay(recording, Stream::compute, {});
      bench.device->synchronize();
      CHECK(bench.download(bench.vector(1)) == std::vector<float>(4096, 12));
      CHECK(seconds >= 0);
      CHECK(progress.finished[static_cast<std::size_t>(Stream::compute)] == 17);
      bench.device->forget_recordings();
    }
    CHECK(machine.problems().empty());
    CHECK(machine.leaks().empty());
  }
}

TEST_CASE("cuda device: products of a recording are counted as often as it is replayed") {
  const Machine machine;
  const Bench bench;
  Kernel product;
  product.op = Op::matmul;
  product.dims = {16, 16, 16};
  product.operands = {Tensor{bench.vector(0).data, DataType::fp32, 256},
                      {bench.vector(1).data, DataType::fp32, 256},
                      {},
                      {bench.vector(2).data, DataType::fp32, 256}};
  for (Elements i = 0; i < 2; ++i) bench.upload(bench.vector(i), std::vector<float>(4096, 1));
  bench.device->begin_recording(Stream::compute);
  bench.device->execute(product, Stream::compute, {});
  const Device::Recording recording = bench.device->end_recording();
  CHECK(bench.device->product_flops() == 0);
  for (int i = 0; i < 3; ++i) bench.device->replay(recording, Stream::compute, {});
  bench.device->synchronize();
  CHECK(bench.device->product_flops() == 3 * 2 * 16 * 16 * 16);
  CHECK(bench.download(bench.vector(2))[7] == 16);
  CHECK(machine.problems().empty());
}

TEST_CASE("cuda device: its memory is what the driver counts") {
  const Machine machine({.gpus = std::vector<Gpu>(1)});
  const Bench bench;
  const program::DeviceMemoryUse before = bench.device->memory_use();
  CHECK(before.total > 0);
  std::byte* block = bench.device->allocate(8 * kMiB, Space::device);
  CHECK(bench.device->memory_use().used == before.used + 8 * kMiB);
  bench.device->deallocate(block, 8 * kMiB, Space::device);
}

TEST_CASE("cuda device: what it does not have, and operands that cannot be, are refused by name") {
  const Machine machine;
  Bench bench;
  CHECK_FALSE(bench.device->executes(Op::route_tokens));
  CHECK_FALSE(bench.device->executes(Op::all_reduce));
  CHECK(contains(message_of([&] { bench.run(Op::accumulate, {bench.vector(0)}); }), "accumulate"));
}
