#include "executor/lowering.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "executor/device/cpu/cpu_device.hpp"
#include "executor/error.hpp"
#include "planner/predict/memory.hpp"
#include "planner/program/builder.hpp"
#include "planner/program/compile.hpp"
#include "tests/support/plans.hpp"

// Steps that are lowered: against lists that were worked out by hand, and against a walk of the program that knows only
// what repeats, events and ages mean.

using namespace zeroplan;
using namespace zeroplan::executor;
using program::at;
using program::Op;
using program::Stream;

namespace {

class SizedPlane final : public DataPlane {
 public:
  explicit SizedPlane(std::int64_t size) : size_(size) {}
  std::int64_t rank() const override { return 0; }
  std::int64_t size() const override { return size_; }
  DataPlaneCapabilities capabilities() const override { return {}; }
  void enqueue(const Transfer&, Device&, Stream, const Watch&) override {}
  const Ledger& ledger() const override { return ledger_; }
  const Moved& moved() const override { return moved_; }

 private:
  std::int64_t size_;
  Ledger ledger_;
  Moved moved_;
};

// A data plane for each group of a program.
struct Planes {
  explicit Planes(const program::StepProgram& program) {
    for (const program::Group& group : program.groups) pointers.push_back(&planes.emplace_back(group.size));
  }
  std::deque<SizedPlane> planes;
  GroupPlanes pointers;
};

// A program with all that lowering it needs.
struct Lowered {
  Lowered(program::StepProgram compiled, ArenaSize size, const GroupPlanes& groups, LoweringForm form = {})
      : program(std::move(compiled)), arena(*device, program, size), decay_mask(program) {
    Lowering lowering(program, *device, arena, groups, decay_mask, settings);
    std::size_t begin = 0;
    while (begin < program.code.size() && program.code[begin].op != Op::phase) ++begin;
    // The second phase is the first of a step.
    ++begin;
    while (begin < program.code.size() && program.code[begin].op != Op::phase) ++begin;
    first_of_step = begin;
    (void)lowering.lower(0, begin, {.beside = false, .with_memory = true});
    states = arena.high_water();
    step = lowering.lower(begin, program.code.size(), form);
    again = lowering.lower(begin, program.code.size(), form);
  }

  std::unique_ptr<Device> device = make_cpu_device({});
  program::StepProgram program;
  Arena arena;
  DecayMask decay_mask;
  StepSettings settings;
  std::size_t first_of_step = 0;
  ArenaSize states;
  LoweredStep step, again;
};

// Three events by hand: what a step of `program` signals and waits for is said below.
void signal(program::StepProgram& program, std::size_t instruction, std::uint16_t event) {
  program.order.mark_of.resize(program.code.size());
  program::Order::Mark mark = program.order.mark(instruction);
  mark.signals = event;
  program.order.mark_of[instruction] = static_cast<std::uint16_t>(program.order.marks.size());
  program.order.marks.push_back(mark);
}
void wait(program::StepProgram& program, std::size_t instruction, program::Order::Wait wait) {
  program.order.mark_of.resize(program.code.size());
  program::Order::Mark mark = program.order.mark(instruction);
  mark.first_wait = static_cast<std::uint32_t>(program.order.waits.size());
  mark.waits = 1;
  program.order.waits.push_back(wait);
  program.order.mark_of[instruction] = static_cast<std::uint16_t>(program.order.marks.size());
  program.order.marks.push_back(mark);
}

// "0 fill_zero 2 compute waits 1 signals 0": command, instruction, layer, stream, events.
std::vector<std::string> text_of(const Lowered& lowered) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < lowered.step.commands.size(); ++i) {
    const Command& command = lowered.step.commands[i];
    std::string line =
        fmt::format("{} {} {} {}", i, program::name_of(lowered.program.code[command.instruction].op),
                    command.layer, program::name_of(command.stream));
    for (std::size_t w = 0; w < command.waits; ++w)
      line += fmt::format(" waits {}", lowered.step.waits[command.first_wait + w].event);
    if (command.signals != Command::kNoEvent) line += fmt::format(" signals {}", command.signals);
    lines.push_back(line);
  }
  return lines;
}

// Three instances of `x` on the device, and a ring of two of `h` on the host, each of 64 floats.
struct Buffers {
  program::BufferId x, h;
};
Buffers declare(program::StepProgram& program, program::Builder& builder) {
  builder.phase(program::Phase::setup);
  const Buffers buffers{
      builder.buffer("x", program::DataType::fp32, program::Category::parameter, 64, {3, 0}),
      builder.buffer("h", program::DataType::fp32, program::Category::workspace, 64, {2, 0},
                     program::Space::host)};
  builder.acquire_all(buffers.x);
  builder.acquire_all(buffers.h);
  builder.phase(program::Phase::forward);
  (void)program;
  return buffers;
}
constexpr ArenaSize kArena{3 * 256, 2 * 256};

}  // namespace

TEST_CASE("lowering: layers are unrolled, and waits of an age are for the commands that they mean") {
  program::StepProgram program;
  program::Builder builder(program, 256);
  const Buffers buffers = declare(program, builder);
  std::size_t fill = 0, copy = 0;
  builder.layers(3, 0, 1, [&] {
    fill = program.code.size();
    builder.emit(Op::fill_zero, {64}, {at(buffers.x)});
    copy = program.code.size();
    builder.emit(Op::copy_to_host, {64}, {at(buffers.x), at(buffers.h)});
  });
  // A copy waits for the fill before it; a fill for the copy before the last one.
  program.order.events = {{Stream::compute, 0}, {Stream::to_host, 1}};
  signal(program, fill, 0);
  signal(program, copy, 1);
  wait(program, copy, {0, 0});
  wait(program, fill, {1, 1});
  const Lowered lowered(program, kArena, {});
  CHECK(text_of(lowered) == std::vector<std::string>{
                                "0 fill_zero 0 compute signals 0",
                                "1 copy_to_host 0 to_host waits 0 signals 2",
                                "2 fill_zero 1 compute signals 1",
                                "3 copy_to_host 1 to_host waits 1",
                                "4 fill_zero 2 compute waits 2 signals 3",
                                "5 copy_to_host 2 to_host waits 3",
                            });
  CHECK(lowered.step.events == 4);
  CHECK(lowered.step.plays() == 6);
  const auto& kernels = lowered.step.kernels;
  for (std::size_t layer = 0; layer < 3; ++layer) {
    CHECK(kernels[2 * layer].operands[0].data == kernels[0].operands[0].data + 256 * layer);
    CHECK(kernels[2 * layer + 1].operands[1].data == kernels[1].operands[1].data + 256 * (layer % 2));
  }
  // In order nothing waits, and nothing runs beside.
  const Lowered in_order(program, kArena, {}, {.beside = false});
  CHECK(text_of(in_order)[4] == "4 fill_zero 2 compute");
  CHECK(text_of(in_order)[5] == "5 copy_to_host 2 compute");
  CHECK(in_order.step.events == 0);
}

TEST_CASE(
    "lowering: micro-batches that are alike are one part, which waits for its own commands of the time "
    "before") {
  program::StepProgram program;
  program::Builder builder(program, 256);
  const Buffers buffers = declare(program, builder);
  std::size_t fill = 0, copy = 0;
  builder.times(5, [&] {
    fill = program.code.size();
    builder.emit(Op::fill_zero, {64}, {at(buffers.x)});
    copy = program.code.size();
    builder.emit(Op::copy_to_host, {64}, {at(buffers.x), at(buffers.h)});
  });
  const std::size_t last = program.code.size();
  builder.emit(Op::fill_zero, {64}, {at(buffers.x)});
  program.order.events = {{Stream::compute, 0}, {Stream::to_host, 0}};
  signal(program, fill, 0);
  signal(program, copy, 1);
  wait(program, copy, {0, 0});
  wait(program, fill, {1, 0});
  wait(program, last, {1, 0});
  const Lowered lowered(program, kArena, {});
  // The first micro-batch waits for nothing; the others, and what follows, for the copy before them.
  CHECK(text_of(lowered) == std::vector<std::string>{
                                "0 fill_zero -1 compute signals 0",
                                "1 copy_to_host -1 to_host waits 0 signals 1",
                                "2 fill_zero -1 compute waits 1 signals 2",
                                "3 copy_to_host -1 to_host waits 2 signals 1",
                                "4 fill_zero -1 compute waits 1",
                            });
  REQUIRE(lowered.step.parts.size() == 3);
  const std::array<std::array<std::int64_t, 3>, 3> parts{{{0, 2, 1}, {2, 4, 4}, {4, 5, 1}}};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    CHECK(static_cast<std::int64_t>(lowered.step.parts[i].begin) == parts[i][0]);
    CHECK(static_cast<std::int64_t>(lowered.step.parts[i].end) == parts[i][1]);
    CHECK(lowered.step.parts[i].times == parts[i][2]);
  }
  CHECK(lowered.step.plays() == 11);
}

TEST_CASE("lowering: chunks differ in what they read, so each is a command of its own") {
  program::StepProgram program;
  program::Builder builder(program, 256);
  const Buffers buffers = declare(program, builder);
  const program::BufferId scalars =
      builder.buffer("scalars", program::DataType::fp32, program::Category::workspace, program::kScalars);
  builder.acquire(at(scalars));
  builder.times(3, [&] {
    builder.emit(Op::gradient_to_fp32, {64, 24}, {at(buffers.x), at(scalars), at(buffers.x, 1)});
  });
  builder.release(at(scalars));
  const Lowered lowered(program, {kArena.device + 256, kArena.host}, {});
  REQUIRE(lowered.step.kernels.size() == 3);
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(lowered.step.kernels[i].iteration == static_cast<std::int64_t>(i));
  CHECK(lowered.arena.high_water().device == kArena.device + 256);
}

TEST_CASE("lowering: what a device or the layout does not have is refused before anything runs") {
  program::StepProgram program;
  program::Builder builder(program, 256);
  const Buffers buffers = declare(program, builder);
  builder.emit(Op::route_tokens, {64}, {at(buffers.x), at(buffers.h)});
  CHECK_THROWS_WITH_AS(Lowered(program, kArena, {}), doctest::Contains("route_tokens"), DeviceError);
  program.code.pop_back();
  CHECK_THROWS_WITH_AS(Lowered(program, {2 * 256, 2 * 256}, {}), doctest::Contains("was not laid out"),
                       DeviceError);
  builder.emit(Op::all_reduce, {64}, {at(buffers.x)}).group = 0;
  CHECK_THROWS_AS(Lowered(program, kArena, {}), CommunicationError);
}

namespace {

// One execution of an instruction, with what it waits for: executions of others by their numbers.
struct Execution {
  std::size_t instruction = 0;
  std::int64_t layer = -1;
  std::vector<std::size_t> waits;

  bool operator==(const Execution&) const = default;
};

// Walks a program as the contract of Order reads, one execution after the other.
class Unrolled {
 public:
  Unrolled(const program::StepProgram& program, std::size_t begin) : program_(program) {
    signalled_.resize(program.order.events.size());
    walk(begin, program.code.size(), 0, false);
  }
  std::vector<Execution> executions;

 private:
  void walk(std::size_t begin, std::size_t end, std::int64_t layer, bool in_layers) {
    for (std::size_t i = begin; i < end; ++i) {
      const program::Instruction& instruction = program_.code[i];
      if (instruction.op == Op::repeat) {
        const auto [count, first, step, close] = instruction.dims;
        for (std::int64_t k = 0; k < count; ++k)
          walk(i + 1, static_cast<std::size_t>(close), layer + first + k * step, in_layers || step != 0);
        i = static_cast<std::size_t>(close);
        continue;
      }
      if (instruction.op == Op::wait_for_all) {
        executions.push_back({i, -1, {}});
        for (auto& of_event : signalled_) of_event.clear();
      }
      if (!program::is_executed(instruction.op)) continue;
      Execution execution{i, in_layers ? layer : -1, {}};
      for (const program::Order::Wait& wait : program_.order.waits_of(i)) {
        const auto& of_event = signalled_[wait.event];
        if (wait.age < of_event.size()) execution.waits.push_back(of_event[of_event.size() - 1 - wait.age]);
      }
      const std::uint16_t event = program_.order.mark(i).signals;
      if (event != program::Order::kNoEvent) signalled_[event].push_back(executions.size());
      executions.push_back(execution);
    }
  }

  const program::StepProgram& program_;
  std::vector<std::vector<std::size_t>> signalled_;
};

// The same of a lowered step: an event means what was recorded on it last.
std::vector<Execution> played(const LoweredStep& step) {
  std::vector<Execution> executions;
  std::vector<std::size_t> recorded(step.events, 0);
  for_each_play(step, [&](const Command& command, std::size_t number) {
    Execution execution{command.instruction, command.layer, {}};
    for (std::size_t w = 0; w < command.waits; ++w)
      execution.waits.push_back(recorded[step.waits[command.first_wait + w].event]);
    if (command.signals != Command::kNoEvent) recorded[command.signals] = number;
    executions.push_back(execution);
  });
  return executions;
}

// The first difference in words; empty where there is none.
std::string difference(const std::vector<Execution>& want, const std::vector<Execution>& got) {
  if (want.size() != got.size()) return fmt::format("{} executions, expected {}", got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!(want[i] == got[i])) return fmt::format("execution {} of instruction {}", i, want[i].instruction);
  }
  return {};
}

// False for a plan with instructions that the device does not have.
bool check_plan(const std::string& name, const describe::Model& model, const describe::Plan& plan) {
  program::StepProgram program = program::compile(model, plan);
  const std::unique_ptr<Device> device = make_cpu_device({});
  const bool runs =
      std::all_of(program.code.begin(), program.code.end(), [&](const program::Instruction& one) {
        return !program::is_executed_by_device(one.op) || device->executes(one.op);
      });
  if (!runs) return false;
  const predict::MemoryProfile memory = predict::read_memory(program);
  Planes planes(program);
  const Lowered lowered(std::move(program), {memory.peak, memory.host_peak}, planes.pointers);
  CAPTURE(name);
  CHECK(difference(Unrolled(lowered.program, lowered.first_of_step).executions, played(lowered.step)) == "");
  CHECK(lowered.arena.high_water().device == memory.peak);
  CHECK(lowered.arena.high_water().host == memory.host_peak);
  // Each step is the same list: the same addresses too.
  CHECK(lowered.again.commands == lowered.step.commands);
  for (std::size_t i = 0; i < lowered.step.kernels.size(); ++i) {
    for (std::size_t o = 0; o < program::kMaxOperands; ++o)
      REQUIRE(lowered.step.kernels[i].operands[o].data == lowered.again.kernels[i].operands[o].data);
  }
  return true;
}

}  // namespace

TEST_CASE(
    "lowering: every plan plays each instruction as often as its repeats say, with the waits of its order") {
  int checked = 0;
  for (const describe::Model& model : {zeroplan::test::small_gpt(), zeroplan::test::small_llama()}) {
    zeroplan::test::for_each_plan(model, [&](const std::string& name, const describe::Plan& plan) {
      checked += check_plan(name, model, plan) ? 1 : 0;
    });
  }
  CHECK(checked >= 200);
}

TEST_CASE("lowering: a step of 64 micro-batches is not longer than one of 4") {
  const describe::Model model = zeroplan::test::small_gpt();
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    std::map<std::int64_t, std::size_t> commands;
    for (const std::int64_t accumulation : {4, 64}) {
      describe::Plan plan = zeroplan::test::plain_plan();
      plan.data_parallel = 2;
      plan.zero_stage = stage;
      plan.gradient_accumulation = accumulation;
      CHECK(check_plan("accumulation", model, plan));
      program::StepProgram program = program::compile(model, plan);
      const predict::MemoryProfile memory = predict::read_memory(program);
      Planes planes(program);
      commands[accumulation] =
          Lowered(std::move(program), {memory.peak, memory.host_peak}, planes.pointers).step.commands.size();
    }
    CHECK(commands[4] == commands[64]);
  }
}
