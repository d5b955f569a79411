#include "executor/lowering.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "executor/error.hpp"
#include "executor/step_scalars.hpp"
#include "planner/instructions/table.hpp"
#include "planner/program/instances.hpp"

namespace zeroplan::executor {

using program::BufferId;
using program::Class;
using program::Instruction;
using program::Op;
using program::Stream;

namespace {

constexpr std::uint32_t kNoEvent = Command::kNoEvent;

// Whether what an instruction does depends on the iteration that it is in.
bool reads_iteration(const Instruction& instruction) {
  const program::Shape first{instruction.dims, instruction.extra, 0};
  const program::Shape second{instruction.dims, instruction.extra, 1};
  const auto& operands = program::row_of(instruction.op).operands;
  return std::any_of(operands.begin(), operands.end(), [&](const program::OperandRow& operand) {
    return operand.extent(first) != operand.extent(second) || operand.moved(first) != operand.moved(second);
  });
}

bool same_memory(const Tensor& a, const Tensor& b) { return a.data == b.data && a.elements == b.elements; }

}  // namespace

Lowering::Lowering(const program::StepProgram& program, const Device& device, Arena& arena,
                   const GroupPlanes& groups, const DecayMask& decay_mask, const StepSettings& settings)
    : program_(program),
      device_(device),
      arena_(arena),
      groups_(groups),
      decay_mask_(decay_mask),
      settings_(settings) {
  const auto scalars = std::find_if(program.buffers.begin(), program.buffers.end(),
                                    [](const program::Buffer& buffer) { return buffer.name == "scalars"; });
  if (scalars != program.buffers.end()) scalars_ = narrow<BufferId>(scalars - program.buffers.begin());
}

LoweredStep Lowering::lower(std::size_t begin, std::size_t end, LoweringForm form) {
  form_ = form;
  step_ = {};
  signalled_.assign(program_.order.events.size(), {});
  run(begin, end, {});
  const std::size_t done = step_.parts.empty() ? 0 : step_.parts.back().end;
  step_.parts.push_back({done, step_.commands.size(), 1});
  name_events();
  return std::exchange(step_, {});
}

void Lowering::run(std::size_t begin, std::size_t end, const Registers& registers) {
  for (std::size_t i = begin; i < end; ++i) {
    const Instruction& instruction = program_.code[i];
    if (instruction.op == Op::phase) phase_ = static_cast<program::Phase>(instruction.dims[0]);
    if (instruction.op == Op::wait_for_all)
      meet({.phase = phase_, .instruction = static_cast<std::uint32_t>(i)});
    if (instruction.op != Op::repeat) {
      emit(i, registers);
      continue;
    }
    const auto [count, first, step, close] = instruction.dims;
    if (step == 0) {
      iterate(i, registers);
    } else {
      for (std::int64_t k = 0; k < count; ++k) {
        Registers inner = registers;
        inner.layer += first + k * step;
        inner.in_layers = true;
        run(i + 1, static_cast<std::size_t>(close), inner);
      }
    }
    i = static_cast<std::size_t>(close);
  }
}

// The first iterations differ from the later ones in what they wait for. From the first one on that is like the one before
// it, all are.
void Lowering::iterate(std::size_t repeat, const Registers& registers) {
  const auto [count, first, step, close] = program_.code[repeat].dims;
  Mark before;
  const Mark loop = mark();
  for (std::int64_t k = 0; k < count; ++k) {
    Registers inner = registers;
    inner.iteration = k;
    inner.in_iterations = true;
    const Mark now = mark();
    run(repeat + 1, static_cast<std::size_t>(close), inner);
    if (!registers.in_iterations && k > 0 && is_alike(loop, before, now))
      return fold(loop, before, now, count - k + 1);
    before = now;
  }
}

Lowering::Mark Lowering::mark() const {
  return {step_.commands.size(),  step_.waits.size(),   step_.kernels.size(),
          step_.transfers.size(), step_.batches.size(), step_.lives.size()};
}

// Whether the iteration from `now` on does the same as the one from `before` to `now`, with waits that are for the same
// commands of their own iteration, or of an earlier one equally far back, or of what came before the loop.
bool Lowering::is_alike(const Mark& loop, const Mark& before, const Mark& now) const {
  const std::size_t length = now.command - before.command;
  if (step_.commands.size() - now.command != length ||
      step_.waits.size() - now.wait != now.wait - before.wait)
    return false;
  const auto offset = static_cast<std::uint32_t>(length);
  for (std::size_t i = before.command; i < now.command; ++i) {
    const Command& a = step_.commands[i];
    const Command& b = step_.commands[i + length];
    if (a.instruction != b.instruction || a.layer != b.layer || a.waits != b.waits || a.kind != b.kind)
      return false;
    for (std::size_t w = 0; w < a.waits; ++w) {
      const std::uint32_t of_a = step_.waits[a.first_wait + w].event;
      const std::uint32_t of_b = step_.waits[b.first_wait + w].event;
      const bool in_loop = of_b >= loop.command;
      if (in_loop ? of_a < loop.command || of_a + offset != of_b : of_a != of_b) return false;
    }
    if (a.kind == Command::Kind::kernel) {
      const Kernel& x = step_.kernels[a.what];
      const Kernel& y = step_.kernels[b.what];
      if (x.iteration != y.iteration || x.mask != y.mask ||
          !std::equal(x.operands.begin(), x.operands.end(), y.operands.begin(), same_memory))
        return false;
    } else if (a.kind == Command::Kind::transfer) {
      const Transfer& x = step_.transfers[a.what].transfer;
      const Transfer& y = step_.transfers[b.what].transfer;
      if (!same_memory(x.whole, y.whole) || !same_memory(x.own, y.own)) return false;
    } else if (a.kind == Command::Kind::batch) {
      if (!std::equal(step_.batches[a.what].begin(), step_.batches[a.what].end(),
                      step_.batches[b.what].begin(), same_memory))
        return false;
    }
  }
  // Lives are numbered by acquisition, so each play of an observed step needs its own.
  return step_.lives.size() == now.life;
}

// The iteration from `before` on is played `times` times, and the one from `now` on is forgotten.
void Lowering::fold(const Mark& loop, const Mark& before, const Mark& now, std::int64_t times) {
  const std::size_t length = now.command - before.command;
  // What it waits for of earlier iterations is, from the second time on, its own command of the time before.
  for (std::size_t w = before.wait; w < now.wait; ++w) {
    const std::size_t target = step_.waits[w].event;
    if (target < loop.command || target >= before.command) continue;
    const std::size_t back = (before.command - target) % length;
    same_event_[target] = static_cast<std::uint32_t>(back == 0 ? before.command : now.command - back);
  }
  for (auto& commands : signalled_) {
    for (std::uint32_t& command : commands) {
      if (command >= now.command) command -= static_cast<std::uint32_t>(length);
    }
  }
  step_.commands.resize(now.command);
  step_.waits.resize(now.wait);
  step_.kernels.resize(now.kernel);
  step_.transfers.resize(now.transfer);
  step_.batches.resize(now.batch);
  same_event_.resize(now.command);
  const std::size_t done = step_.parts.empty() ? 0 : step_.parts.back().end;
  if (done < before.command) step_.parts.push_back({done, before.command, 1});
  step_.parts.push_back({before.command, now.command, times});
}

void Lowering::emit(std::size_t index, const Registers& registers) {
  const Instruction& instruction = program_.code[index];
  Command command{.stream = form_.beside ? instruction.stream : Stream::compute,
                  .phase = phase_,
                  .layer = static_cast<std::int32_t>(registers.in_layers ? registers.layer : -1),
                  .instruction = static_cast<std::uint32_t>(index)};
  switch (program::class_of(instruction.op)) {
    case Class::structure:
      return;
    case Class::memory:
      return memory(instruction, registers, command);
    case Class::input:
      command.kind = Command::Kind::batch;
      command.what = static_cast<std::uint32_t>(step_.batches.size());
      step_.batches.push_back({operand(instruction, 0, registers), operand(instruction, 1, registers)});
      break;
    case Class::collective:
      command.kind = Command::Kind::transfer;
      command.what = static_cast<std::uint32_t>(step_.transfers.size());
      step_.transfers.push_back(transfer(instruction, registers));
      break;
    case Class::kernel:
    case Class::to_host:
    case Class::to_device:
      command.kind = Command::Kind::kernel;
      command.what = static_cast<std::uint32_t>(step_.kernels.size());
      step_.kernels.push_back(kernel(instruction, registers));
  }
  order(index, command);
  add(command);
}

void Lowering::add(const Command& command) {
  same_event_.push_back(static_cast<std::uint32_t>(step_.commands.size()));
  step_.commands.push_back(command);
}

void Lowering::order(std::size_t index, Command& command) {
  command.first_wait = static_cast<std::uint32_t>(step_.waits.size());
  if (!form_.beside) return;
  for (const program::Order::Wait& wait : program_.order.waits_of(index)) {
    const std::vector<std::uint32_t>& commands = signalled_[wait.event];
    if (wait.age >= commands.size()) continue;
    const Stream other = program_.order.events[wait.event].stream;
    step_.waits.push_back(
        {commands[commands.size() - 1 - wait.age],
         command.stream == Stream::compute && (other == Stream::communication || other == Stream::tensor)});
  }
  command.waits = static_cast<std::uint32_t>(step_.waits.size()) - command.first_wait;
  const std::uint16_t event = program_.order.mark(index).signals;
  if (event == program::Order::kNoEvent) return;
  command.signals = event;
  std::vector<std::uint32_t>& commands = signalled_[event];
  commands.push_back(static_cast<std::uint32_t>(step_.commands.size()));
  if (commands.size() > std::size_t{program_.order.events[event].oldest} + 1)
    commands.erase(commands.begin());
}

void Lowering::meet(Command command) {
  command.kind = Command::Kind::meet;
  add(command);
  for (auto& commands : signalled_) commands.clear();
}

void Lowering::memory(const Instruction& instruction, const Registers& registers, Command command) {
  const bool acquires = program::row_of(instruction.op).takes.sign > 0;
  const Bytes highest = arena_.high_water().device;
  program::for_each_taken(program_, instruction, registers.layer, registers.iteration,
                          [&](program::BufferId buffer, std::int64_t instance) {
                            const Arena::Life life = acquires ? arena_.acquire(buffer, instance)
                                                              : arena_.release(buffer, instance);
                            if (!form_.with_memory) return;
                            command.kind = acquires ? Command::Kind::acquire : Command::Kind::release;
                            command.what = static_cast<std::uint32_t>(step_.lives.size());
                            step_.lives.push_back(life);
                            add(command);
                          });
  if (arena_.high_water().device > highest)
    peak_position_ = {command.phase, command.layer, command.instruction};
}

// Commands that nobody waits for record nothing; those that stand for the same event have one.
void Lowering::name_events() {
  const auto last = [&](std::uint32_t command) {
    while (same_event_[command] != command) command = same_event_[command];
    return command;
  };
  std::vector<std::uint32_t> event_of(step_.commands.size(), kNoEvent);
  for (CommandWait& wait : step_.waits) {
    std::uint32_t& event = event_of[last(wait.event)];
    if (event == kNoEvent) event = step_.events++;
    wait.event = event;
  }
  for (std::uint32_t i = 0; i < step_.commands.size(); ++i) step_.commands[i].signals = event_of[last(i)];
  same_event_.clear();
}

Kernel Lowering::kernel(const Instruction& instruction, const Registers& registers) const {
  if (!device_.executes(instruction.op)) {
    throw DeviceError(
        fmt::format("{} does not have the instruction {}", device_.name(), program::name_of(instruction.op)));
  }
  Kernel kernel;
  kernel.op = instruction.op;
  kernel.flags = instruction.flags;
  kernel.extra = instruction.extra;
  kernel.iteration = reads_iteration(instruction) ? registers.iteration : 0;
  kernel.layer = registers.layer;
  kernel.counts_replicated = program_.speaks_for_replicated();
  kernel.dims = instruction.dims;
  for (std::size_t i = 0; i < program::kMaxOperands; ++i) {
    kernel.operands[i] = operand(instruction, i, registers);
  }
  if (instruction.op == Op::optimizer_update && settings_.decayed == Decayed::matrices) {
    kernel.undecayed = decay_mask_.undecayed(instruction.extra);
  }
  if (draws_mask(kernel)) kernel.mask = mask(instruction, registers);
  kernel.settings = &settings_;
  if (scalars_ != program::kNoBuffer) kernel.scalars = scalars();
  return kernel;
}

// Micro-batches are numbered as their sequences are: rank by rank, pass by pass.
DrawnMask Lowering::mask(const Instruction& instruction, const Registers& registers) const {
  const std::size_t index = program::drawn_mask(instruction.op);
  const program::Operand operand = instruction.operands[index];
  DrawnMask mask;
  mask.key = dropout_key(settings_.dropout_seed, program_.buffers[operand.buffer].name,
                         registers.layer + operand.layer_offset);
  if (step_.batches.empty())
    throw DeviceError(fmt::format("{} before a micro-batch", program::name_of(instruction.op)));
  const program::Group ranks = program_.group(program::GroupKind::data_parallel);
  const std::int64_t passes =
      div_exact(program_.tokens_per_step, ranks.size * step_.batches.back().front().elements);
  const auto pass = narrow<std::int64_t>(step_.batches.size()) - 1;
  const Elements elements =
      program::row_of(instruction.op).operands[index].extent(program::shape_of(instruction));
  const std::int64_t micro_batch = ranks.rank * passes + pass;
  const Elements part = instruction.dims[1];
  const std::int64_t dividing = std::max<std::int64_t>(1, instruction.dims[2]), place = instruction.dims[3];
  mask.numbers.first = static_cast<std::uint64_t>(micro_batch * elements * dividing + place * part);
  if (dividing > 1) {
    mask.numbers.part = static_cast<std::uint64_t>(part);
    mask.numbers.whole = static_cast<std::uint64_t>(part * dividing);
  }
  return mask;
}

GroupTransfer Lowering::transfer(const Instruction& instruction, const Registers& registers) const {
  // The only place that finds the ranks of an instruction.
  const std::size_t group = instruction.group;
  if (group >= groups_.size()) {
    throw CommunicationError(
        fmt::format("{} over a group without a communicator", program::name_of(instruction.op)));
  }
  DataPlane* const ranks = groups_[group];
  const bool takes_maximum = (instruction.flags & program::kMaximum) != 0;
  Transfer transfer;
  transfer.kind = kind_of(instruction.op);
  transfer.reduction = takes_maximum ? Reduction::maximum : Reduction::sum;
  transfer.whole = operand(instruction, program::whole_operand(instruction.op), registers);
  transfer.whole.elements = instruction.dims[0];
  if (transfer.kind == TransferKind::all_gather) {
    transfer.own = operand(instruction, 0, registers);
    transfer.own.elements = div_exact(instruction.dims[0], ranks->size());
  }
  return {ranks, group, transfer};
}

Tensor Lowering::operand(const Instruction& instruction, std::size_t index,
                         const Registers& registers) const {
  const program::Operand operand = instruction.operands[index];
  if (operand.buffer == program::kNoBuffer) return {};
  return arena_.tensor(operand.buffer,
                       program::instance_of(program_, operand, registers.layer, registers.iteration));
}

}  // namespace zeroplan::executor
