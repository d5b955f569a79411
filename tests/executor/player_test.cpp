#include "executor/player.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "executor/communicator/threads/thread_communicator.hpp"
#include "executor/device/cpu/cpu_device.hpp"
#include "executor/device/cpu/streams.hpp"
#include "executor/error.hpp"
#include "executor/rank.hpp"
#include "planner/predict/memory.hpp"
#include "planner/program/compile.hpp"
#include "tests/executor/training_support.hpp"

// Lowered steps that are played: what a device is asked for, and that playing costs no memory.

// Sanitizers bring an operator of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ZEROPLAN_COUNTS_ALLOCATIONS
namespace {

thread_local std::int64_t allocations = 0;  // of the calling thread

}  // namespace

// NOLINTBEGIN(cppcoreguidelines-no-malloc): these are what others manage memory with
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
// NOLINTEND(cppcoreguidelines-no-malloc)
#endif

using namespace zeroplan;
using namespace zeroplan::executor;
using program::Op;
using program::Stream;

namespace {

// Writes down what it is asked for; nothing runs.
class WritingDevice final : public Device {
 public:
  explicit WritingDevice(std::vector<std::string>& asked) : asked_(asked) {}

  std::string name() const override { return "writing"; }
  DeviceCapabilities capabilities() const override {
    return {.host_reaches_memory = false, .runs_beside = true};
  }
  bool executes(Op) const override { return true; }
  std::byte* allocate(Bytes bytes, program::Space) override {
    return memory_.emplace_back(std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes))).get();
  }
  void deallocate(std::byte*, Bytes, program::Space) override {}
  void upload(std::byte*, std::span<const std::byte> from, Stream stream) override {
    add("upload {} bytes on {}", from.size(), program::name_of(stream));
  }
  void download(std::span<std::byte>, const std::byte*) override {}
  void execute(const Kernel& kernel, Stream stream, const Watch& watch) override {
    if (kernel.op == fails) throw DeviceError("broken");
    if (keeps_) return add("keep {}", program::name_of(kernel.op));
    add("{} on {}", program::name_of(kernel.op), program::name_of(stream));
    *watch.seconds = kernel.op == Op::norm_forward ? 0.75F : 0.25F;
    watch.progress->finished[static_cast<std::size_t>(stream)] = watch.number;
  }
  void run_on_host(Stream, const HostWork&, const Watch&) override {}
  bool can_record(const Kernel& kernel) const override {
    return records && program::class_of(kernel.op) == program::Class::kernel;
  }
  void begin_recording(Stream) override { keeps_ = true; }
  Recording end_recording() override {
    keeps_ = false;
    return recordings_++;
  }
  void replay(Recording recording, Stream stream, const Watch& watch) override {
    add("replay {} on {}", recording, program::name_of(stream));
    *watch.seconds = 0.6F;
    watch.progress->finished[static_cast<std::size_t>(stream)] = watch.number;
  }
  void forget_recordings() override { recordings_ = 0; }
  Event make_event() override { return events_++; }
  void record(Event event, Stream stream) override {
    if (event >= program::kStreams)
      add("record {} on {}", event - program::kStreams, program::name_of(stream));
  }
  void wait(Stream stream, Event event, double* held) override {
    if (event < program::kStreams) return;  // of a meeting
    add("{} waits for {}", program::name_of(stream), event - program::kStreams);
    if (held != nullptr) *held += 1;
  }
  void synchronize() override { add("synchronize"); }
  void drain() noexcept override { ++drained; }
  Flops product_flops() const override { return 0; }
  Bytes workspace_bytes() const override { return 0; }

  int drained = 0;
  bool records = false;
  Op fails = Op::phase;

 private:
  template <class... Values>
  void add(fmt::format_string<Values...> text, Values&&... values) {
    asked_.push_back(fmt::format(text, std::forward<Values>(values)...));
  }

  std::vector<std::string>& asked_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  Event events_ = 0;
  Recording recordings_ = 0;
  bool keeps_ = false;
};

class Counting final : public BatchSource {
 public:
  void next(std::span<std::int32_t> tokens, std::span<std::int32_t> targets) override {
    for (std::int32_t& token : tokens) token = count_++ % 7;
    for (std::int32_t& target : targets) target = count_++ % 7;
  }

 private:
  std::int32_t count_ = 0;
};

Kernel kernel_of(Op op) {
  Kernel kernel;
  kernel.op = op;
  return kernel;
}

Command command_of(std::uint32_t what, Stream stream, std::uint32_t instruction) {
  Command command;
  command.stream = stream;
  command.what = what;
  command.instruction = instruction;
  command.phase = program::Phase::forward;
  return command;
}

// A batch, then three times: a copy, and a kernel that waits for it as it would for traffic.
LoweredStep three_times() {
  LoweredStep step;
  step.kernels = {kernel_of(Op::copy_to_device), kernel_of(Op::matmul)};
  step.batches.push_back(
      {Tensor{nullptr, program::DataType::int32, 5}, {nullptr, program::DataType::int32, 5}});
  step.events = 1;
  step.waits = {{0, true}};
  Command batch = command_of(0, Stream::input, 1);
  batch.kind = Command::Kind::batch;
  Command copy = command_of(0, Stream::to_device, 2);
  copy.signals = 0;
  Command product = command_of(1, Stream::compute, 3);
  product.waits = 1;
  product.layer = 4;
  step.commands = {batch, copy, product};
  step.parts = {{0, 1, 1}, {1, 3, 3}};
  return step;
}

}  // namespace

TEST_CASE("player: a device is asked for each command in order, with its waits and events, part by part") {
  std::vector<std::string> asked;
  WritingDevice device(asked);
  const program::StepProgram program;
  Arena arena(device, program, {});
  Player player(device, arena);
  const LoweredStep step = three_times();
  player.prepare(step);
  asked.clear();
  Counting batches;
  player.play(step, &batches);
  std::vector<std::string> want{"upload 20 bytes on input", "upload 20 bytes on input"};
  for (int i = 0; i < 3; ++i) {
    for (const char* line :
         {"copy_to_device on to_device", "record 0 on to_device", "compute waits for 0", "matmul on compute"})
      want.emplace_back(line);
  }
  want.emplace_back("synchronize");
  CHECK(asked == want);
  CHECK(device.drained == 1);
  REQUIRE(player.seconds().size() == 7);
  for (std::size_t i = 1; i < 7; ++i) CHECK(player.seconds()[i] == 0.25F);
  CHECK(player.waited_for_traffic_seconds() == 3);
  CHECK(player.position().instruction == 3);
  CHECK(player.position().layer == 4);
  CHECK(player.position().phase == program::Phase::forward);
}

TEST_CASE("player: a step that fails is drained, and says where it was and what each stream finished last") {
  std::vector<std::string> asked;
  WritingDevice device(asked);
  const program::StepProgram program;
  Arena arena(device, program, {});
  Player player(device, arena);
  const LoweredStep step = three_times();
  player.prepare(step);
  device.fails = Op::matmul;
  Counting batches;
  CHECK_THROWS_AS(player.play(step, &batches), DeviceError);
  CHECK(device.drained == 1);
  CHECK(player.position().instruction == 3);
  const auto finished = player.finished();
  REQUIRE(finished.size() == 1);
  CHECK(finished[0].first == Stream::to_device);
  CHECK(finished[0].second.instruction == 2);
  CHECK(finished[0].second.layer == -1);
}

TEST_CASE(
    "player: kernels that follow each other are recorded when they are played a third time, and replayed") {
  std::vector<std::string> asked;
  WritingDevice device(asked);
  device.records = true;
  const program::StepProgram program;
  Arena arena(device, program, {});
  Player player(device, arena);
  // Two kernels and a signal, twice; then a product that waits, a copy, and a product alone.
  LoweredStep step;
  step.kernels = {kernel_of(Op::norm_forward), kernel_of(Op::matmul), kernel_of(Op::copy_to_device)};
  step.events = 1;
  step.waits = {{0, false}};
  Command product = command_of(1, Stream::compute, 2);
  product.signals = 0;
  Command waits = command_of(1, Stream::compute, 3);
  waits.waits = 1;
  step.commands = {command_of(0, Stream::compute, 1),
                   product,
                   waits,
                   command_of(0, Stream::compute, 4),
                   command_of(2, Stream::to_device, 5),
                   command_of(1, Stream::compute, 6)};
  step.parts = {{0, 2, 2}, {2, 6, 1}};
  player.prepare(step);

  const std::vector<std::string> one_by_one{
      "norm_forward on compute",     "matmul on compute", "record 0 on compute",
      "norm_forward on compute",     "matmul on compute", "record 0 on compute",
      "compute waits for 0",         "matmul on compute", "norm_forward on compute",
      "copy_to_device on to_device", "matmul on compute", "synchronize"};
  for (int time = 0; time < 2; ++time) {
    asked.clear();
    player.play(step, nullptr);
    CHECK(asked == one_by_one);
  }
  asked.clear();
  player.play(step, nullptr);
  CHECK(asked == std::vector<std::string>{"keep norm_forward", "keep matmul", "replay 0 on compute",
                                          "record 0 on compute", "replay 0 on compute", "record 0 on compute",
                                          "keep matmul", "keep norm_forward", "compute waits for 0",
                                          "replay 1 on compute", "copy_to_device on to_device",
                                          "matmul on compute", "synchronize"});
  asked.clear();
  player.play(step, nullptr);
  CHECK(asked == std::vector<std::string>{"replay 0 on compute", "record 0 on compute", "replay 0 on compute",
                                          "record 0 on compute", "compute waits for 0", "replay 1 on compute",
                                          "copy_to_device on to_device", "matmul on compute", "synchronize"});
  // What a section took, 0.6 s, is divided as when its kernels took 0.75 and 0.25 s.
  const std::vector<float> seconds{0.45F, 0.15F, 0.45F, 0.15F, 0.15F, 0.45F, 0.25F, 0.25F};
  REQUIRE(player.seconds().size() == seconds.size());
  for (std::size_t i = 0; i < seconds.size(); ++i) CHECK(player.seconds()[i] == doctest::Approx(seconds[i]));
  CHECK(player.position().instruction == 6);

  player.prepare(step);
  asked.clear();
  player.play(step, nullptr);
  CHECK(asked == one_by_one);
}

TEST_CASE("interpreter: ranks that move the host's memory are refused on a device that has its own") {
  std::vector<std::string> asked;
  WritingDevice device(asked);
  const program::StepProgram program;
  Arena arena(device, program, {});
  const auto ranks = make_thread_communicators(1, {});
  const GroupPlanes groups{ranks[0].get()};
  CHECK_THROWS_WITH_AS(Interpreter(program, device, arena, groups), doctest::Contains("that of writing"),
                       DeviceError);
}

TEST_CASE("player: the rate of a step is read where the step before was played with another one") {
  const auto losses = [](double second_rate) {
    test::TrainingOptions options;
    options.steps = 3;
    options.rate = [second_rate](std::int64_t step) { return step == 1 ? 1e-3 : second_rate; };
    return test::train(test::tiny_gpt(), test::fp32_plan(), options).losses;
  };
  const std::vector<float> slow = losses(1e-3), fast = losses(1e-1);
  CHECK(slow[1] == fast[1]);
  CHECK(slow[2] != fast[2]);
}

#ifdef ZEROPLAN_COUNTS_ALLOCATIONS
TEST_CASE("streams: whoever issues work allocates nothing, however far a stream's thread is behind") {
  constexpr int kWorks = 1000;
  std::promise<void> begun, released;
  std::future<void> release = released.get_future();
  std::atomic<int> done = 0;
  cpu::Streams streams;
  const auto run = [&](void (*function)(void*, const void*), void* self) {
    streams.run(Stream::communication, {function, self, nullptr}, {});
  };
  std::pair held{&begun, &release};
  run(
      [](void* self, const void*) {
        const auto& [first, second] = *static_cast<decltype(held)*>(self);
        first->set_value();
        second->wait();
      },
      &held);
  begun.get_future().wait();
  const std::int64_t before = allocations;
  for (int i = 0; i < kWorks; ++i)
    run([](void* self, const void*) { ++*static_cast<std::atomic<int>*>(self); }, &done);
  const std::int64_t during = allocations - before;
  released.set_value();
  streams.synchronize();
  CHECK(during == 0);
  CHECK(done == kWorks);
}

TEST_CASE("player: playing a step allocates nothing") {
  const describe::Model model = test::tiny_gpt();
  for (const int stage : {0, 3}) {
    CAPTURE(stage);
    describe::Plan plan = test::fp32_plan();
    plan.zero_stage = stage;
    plan.data_parallel = stage == 3 ? 2 : 1;
    plan.gradient_accumulation = 2;
    run_ranks(plan.data_parallel, ThreadOptions{}, [&](Communicator& world) {
      program::StepProgram program = program::compile(model, plan, position_of(world.rank(), 1));
      const predict::MemoryProfile memory = predict::read_memory(program);
      Rank rank(std::move(program), {memory.peak, memory.host_peak}, make_cpu_device({}), world);
      rank.initialize(normal_initialization(1, model.layers));
      Counting batches;
      StepSettings settings;
      settings.learning_rate = 1e-3F;
      settings.tokens_per_step = rank.program().tokens_per_step;
      for (int step = 0; step < 3; ++step) rank.interpreter().step(settings, batches);
      const std::int64_t before = allocations;
      rank.interpreter().step(settings, batches);
      const std::int64_t during = allocations - before;
      if (during != 0) throw std::runtime_error(fmt::format("{} allocations in a step", during));
    });
  }
}
#endif
