#include "executor/interpreter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "executor/error.hpp"
#include "planner/instructions/table.hpp"

namespace zeroplan::executor {

using program::BufferId;
using program::Class;
using program::Instruction;
using program::Op;
using program::Phase;
using program::Stream;

namespace {

// Of a copy between device and host.
Bytes moved_bytes(const Kernel& copy) { return copy.dims[0] * program::bytes_of(copy.operands[0].type); }

// When it ends, nothing runs on the device any more.
class Drained {
 public:
  explicit Drained(Device& device) : device_(device) {}
  ~Drained() { device_.drain(); }
  Drained(const Drained&) = delete;
  Drained& operator=(const Drained&) = delete;

 private:
  Device& device_;
};

}  // namespace

Interpreter::Interpreter(const program::StepProgram& program, Device& device, Arena& arena,
                         const Groups& groups)
    : program_(program), device_(device), arena_(arena), groups_(groups), decay_mask_(program) {
  clear_profile();
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    const Instruction& instruction = program.code[i];
    if (instruction.op == Op::phase && static_cast<Phase>(instruction.dims[0]) != Phase::setup) {
      first_after_setup_ = i;
      break;
    }
  }
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    if (program.buffers[b].name == "scalars") scalars_ = static_cast<BufferId>(b);
  }
  overlaps_ = std::all_of(groups_.begin(), groups_.end(), [](const DataPlane* group) {
    return group == nullptr || group->capabilities().runs_beside;
  });
  for (const program::Order::Event& event : program.order.events) {
    executions_.push_back({std::vector<Device::Event>(std::size_t{event.oldest} + 1), 0});
  }
}

void Interpreter::clear_profile() {
  profile_ = {};
  profile_.of_instruction.resize(program_.code.size());
}

void Interpreter::clear_calls(program::Group group) {
  profile_.collectives[static_cast<std::size_t>(group)].clear();
}

void Interpreter::setup() { run(0, first_after_setup_, {}, {}, nullptr); }

void Interpreter::step(const StepSettings& given, BatchSource& batches) {
  // What another stream still does may not outlive the settings, or the memory that it works on.
  StepSettings settings = given;
  settings.model = program_.constants;
  const Drained drained(device_);
  forget_events();
  run(first_after_setup_, program_.code.size(), {}, settings, &batches);
  device_.synchronize();
}

void Interpreter::run(std::size_t begin, std::size_t end, Registers registers, const StepSettings& settings,
                      BatchSource* batches) {
  for (std::size_t i = begin; i < end; ++i) {
    const Instruction& instruction = program_.code[i];
    switch (instruction.op) {
      case Op::repeat: {
        const auto [count, first, step, close] = instruction.dims;
        for (std::int64_t k = 0; k < count; ++k) {
          Registers inner = registers;
          if (step == 0) {
            inner.iteration = k;
          } else {
            inner.layer += first + k * step;
            inner.in_layers = true;
          }
          run(i + 1, static_cast<std::size_t>(close), inner, settings, batches);
        }
        i = static_cast<std::size_t>(close);
        break;
      }
      case Op::end_repeat:
        break;
      case Op::wait_for_all:
        wait_for_all();
        break;
      case Op::phase:
        phase_ = static_cast<Phase>(instruction.dims[0]);
        break;
      default:
        issue(i, registers, settings, batches);
    }
  }
}

void Interpreter::issue(std::size_t index, Registers registers, const StepSettings& settings,
                        BatchSource* batches) {
  using Clock = std::chrono::steady_clock;
  const Instruction& instruction = program_.code[index];
  const bool beside = overlaps_ && !arena_.observing();
  const Stream stream = beside ? instruction.stream : Stream::compute;
  const std::uint64_t here = packed(index, registers);
  position_.store(here, std::memory_order_relaxed);
  const program::Order& order = program_.order;
  if (beside) {
    for (const program::Order::Wait& wait : order.waits_of(index)) {
      const Executions& of = executions_[wait.event];
      if (wait.age >= of.count) continue;
      this->wait(stream, order.events[wait.event].stream,
                 of.youngest[(of.count - 1 - wait.age) % of.youngest.size()]);
    }
  }
  const bool holds_kernels = stream == Stream::compute && program::is_collective(instruction.op);
  const auto timed = [this, index, here, holds_kernels](const auto& work) {
    const auto start = Clock::now();
    try {
      work();
    } catch (...) {
      std::uint64_t none = 0;
      failed_at_.compare_exchange_strong(none, here, std::memory_order_relaxed);
      throw;
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    add_time(index, seconds);
    if (holds_kernels) profile_.waited_for_traffic_seconds += seconds;
  };
  const auto on_stream = [&](const auto& work) {
    if (stream == Stream::compute) {
      timed(work);
    } else {
      device_.run_on_host(stream, [timed, work] { timed(work); });
    }
  };
  switch (program::class_of(instruction.op)) {
    case Class::structure:
      break;  // run() reads it
    case Class::memory:
      timed([&] { memory(instruction, registers.layer); });
      break;
    case Class::input: {
      const std::array<Tensor, 2> batch{operand(instruction, 0, registers.layer),
                                        operand(instruction, 1, registers.layer)};
      timed([&] { batches->next(batch[0].as<std::int32_t>(), batch[1].as<std::int32_t>()); });
      break;
    }
    case Class::collective:
      on_stream([this, &group = ranks_of(instruction), transfer = transfer(instruction, registers.layer),
                 stream] { group.enqueue(transfer, device_, stream); });
      break;
    case Class::kernel:
    case Class::to_host:
    case Class::to_device:
      on_stream([this, launch = kernel(instruction, registers, settings), &settings, stream] {
        device_.execute(launch, settings, stream);
      });
  }
  const std::uint16_t event = order.mark(index).signals;
  if (!beside || event == program::Order::kNoEvent) return;
  Executions& of = executions_[event];
  of.youngest[of.count++ % of.youngest.size()] = device_.record(stream);
}

void Interpreter::wait(Stream stream, Stream other, Device::Event event) {
  const auto start = std::chrono::steady_clock::now();
  device_.wait(stream, event);
  if (stream != Stream::compute || (other != Stream::communication && other != Stream::tensor)) return;
  profile_.waited_for_traffic_seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Interpreter::wait_for_all() {
  for (std::size_t s = 0; s < program::kStreams; ++s) {
    const auto other = static_cast<Stream>(s);
    if (other != Stream::compute) wait(Stream::compute, other, device_.record(other));
  }
  device_.synchronize();
  forget_events();
}

void Interpreter::forget_events() {
  for (Executions& executions : executions_) executions.count = 0;
}

void Interpreter::add_time(std::size_t index, double seconds) {
  Profile::Time& time = profile_.of_instruction[index];
  ++time.calls;
  time.seconds += seconds;
  const program::Group group = program_.code[index].group;
  if (group == program::Group::none) return;
  profile_.collectives[static_cast<std::size_t>(group)].push_back({index, static_cast<float>(seconds)});
}

std::uint64_t Interpreter::packed(std::size_t instruction, Registers registers) const {
  const auto layer = static_cast<std::uint64_t>(registers.in_layers ? registers.layer + 1 : 0);
  return static_cast<std::uint64_t>(phase_) << 56 | layer << 24 | instruction;
}

program::Position Interpreter::position() const {
  const std::uint64_t failed = failed_at_.load(std::memory_order_relaxed);
  const std::uint64_t packed = failed != 0 ? failed : position_.load(std::memory_order_relaxed);
  return {static_cast<Phase>(packed >> 56), static_cast<std::int64_t>(packed >> 24 & 0xffffffff) - 1,
          static_cast<std::size_t>(packed & 0xffffff)};
}

std::string Interpreter::position_text() const {
  const program::Position at = position();
  const std::string_view op = program::name_of(program_.code[at.instruction].op);
  const std::string layer = at.layer < 0 ? "" : fmt::format(" of layer {}", at.layer);
  return fmt::format("{}{} in {}", op, layer, program::name_of(at.phase));
}

void Interpreter::memory(const Instruction& instruction, std::int64_t layer) {
  const BufferId buffer = instruction.operands[0].buffer;
  const std::int64_t instances = program_.buffers[buffer].instances;
  const std::int64_t one = instance_of(buffer, layer + instruction.operands[0].layer_offset);
  const Bytes highest = arena_.high_water().device;
  const program::Takes takes = program::row_of(instruction.op).takes;
  for (std::int64_t i = 0; i < (takes.every_instance ? instances : 1); ++i) {
    if (takes.sign > 0) {
      arena_.acquire(buffer, takes.every_instance ? i : one);
    } else {
      arena_.release(buffer, takes.every_instance ? instances - 1 - i : one);
    }
  }
  if (arena_.high_water().device > highest) peak_position_ = position();
}

DataPlane& Interpreter::ranks_of(const Instruction& instruction) const {
  DataPlane* const group = groups_[static_cast<std::size_t>(instruction.group)];
  if (group != nullptr) return *group;
  throw CommunicationError(fmt::format("{} over {} ranks without a communicator",
                                       program::name_of(instruction.op),
                                       program::name_of(instruction.group)));
}

Transfer Interpreter::transfer(const Instruction& instruction, std::int64_t layer) const {
  const bool takes_maximum = (instruction.flags & program::kMaximum) != 0;
  Transfer transfer{.kind = kind_of(instruction.op),
                    .reduction = takes_maximum ? Reduction::maximum : Reduction::sum};
  transfer.whole = operand(instruction, program::whole_operand(instruction.op), layer);
  transfer.whole.elements = instruction.dims[0];
  if (transfer.kind == TransferKind::all_gather) {
    transfer.own = operand(instruction, 0, layer);
    transfer.own.elements = div_exact(instruction.dims[0], ranks_of(instruction).size());
  }
  return transfer;
}

Kernel Interpreter::kernel(const Instruction& instruction, Registers registers,
                           const StepSettings& settings) {
  Kernel kernel;
  kernel.op = instruction.op;
  kernel.flags = instruction.flags;
  kernel.extra = instruction.extra;
  kernel.iteration = registers.iteration;
  kernel.layer = registers.layer;
  kernel.counts_replicated = program_.tensor_parallel.rank == 0;
  kernel.dims = instruction.dims;
  for (std::size_t i = 0; i < program::kMaxOperands; ++i) {
    kernel.operands[i] = operand(instruction, i, registers.layer);
  }
  if (instruction.op == Op::optimizer_update && settings.decayed == Decayed::matrices) {
    kernel.undecayed = decay_mask_.undecayed(instruction.extra);
  }
  const Class kind = program::class_of(instruction.op);
  if (kind == Class::to_device) profile_.to_device_bytes += moved_bytes(kernel);
  if (kind == Class::to_host) profile_.to_host_bytes += moved_bytes(kernel);
  return kernel;
}

std::int64_t Interpreter::instance_of(BufferId buffer, std::int64_t layer) const {
  return program_.buffers[buffer].instance_of(layer);
}

Tensor Interpreter::operand(const Instruction& instruction, std::size_t index, std::int64_t layer) const {
  const program::Operand operand = instruction.operands[index];
  if (operand.buffer == program::kNoBuffer) return {};
  return arena_.tensor(operand.buffer, instance_of(operand.buffer, layer + operand.layer_offset));
}

Tensor Interpreter::tensor(BufferId buffer, std::int64_t layer) const {
  return arena_.tensor(buffer, instance_of(buffer, layer));
}

Tensor Interpreter::scalars() const { return arena_.tensor(scalars_, 0); }

float Interpreter::scalar(program::Scalar scalar) const {
  return scalars().as<float>()[static_cast<std::size_t>(scalar)];
}

void Interpreter::clear_scalars() {
  const auto all = scalars().as<float>();
  std::fill(all.begin(), all.end(), 0.0F);
}

void Interpreter::set_scalar(program::Scalar scalar, float value) {
  scalars().as<float>()[static_cast<std::size_t>(scalar)] = value;
}

}  // namespace zeroplan::executor
