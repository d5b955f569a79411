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

namespace {

// Of a copy between device and host.
Bytes moved_bytes(const Kernel& copy) { return copy.dims[0] * program::bytes_of(copy.operands[0].type); }

}  // namespace

Interpreter::Interpreter(const program::StepProgram& program, Device& device, Arena& arena,
                         Communicator* data_parallel, Communicator* tensor_parallel)
    : program_(program),
      device_(device),
      arena_(arena),
      data_parallel_(data_parallel),
      tensor_parallel_(tensor_parallel),
      decay_mask_(program) {
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
  StepSettings settings = given;
  settings.model = program_.constants;
  run(first_after_setup_, program_.code.size(), {}, settings, &batches);
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
        device_.synchronize();
        break;
      case Op::phase:
        phase_ = static_cast<Phase>(instruction.dims[0]);
        break;
      default: {
        enter(i, registers);
        const auto start = std::chrono::steady_clock::now();
        one(instruction, registers, settings, batches);
        add_time(i, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      }
    }
  }
}

void Interpreter::add_time(std::size_t index, double seconds) {
  Profile::Time& time = profile_.of_instruction[index];
  ++time.calls;
  time.seconds += seconds;
  const program::Group group = program_.code[index].group;
  if (group == program::Group::none) return;
  profile_.collectives[static_cast<std::size_t>(group)].push_back({index, static_cast<float>(seconds)});
}

void Interpreter::one(const Instruction& instruction, Registers registers, const StepSettings& settings,
                      BatchSource* batches) {
  switch (program::class_of(instruction.op)) {
    case Class::memory:
      memory(instruction, registers.layer);
      break;
    case Class::input:
      batches->next(operand(instruction, 0, registers.layer).as<std::int32_t>(),
                    operand(instruction, 1, registers.layer).as<std::int32_t>());
      break;
    case Class::collective:
      collective(instruction, registers.layer);
      break;
    case Class::structure:
      break;  // step() reads it
    case Class::kernel:
    case Class::to_host:
    case Class::to_device:
      kernel(instruction, registers, settings);
  }
}

void Interpreter::enter(std::size_t instruction, Registers registers) {
  const auto layer = static_cast<std::uint64_t>(registers.in_layers ? registers.layer + 1 : 0);
  position_.store(static_cast<std::uint64_t>(phase_) << 56 | layer << 24 | instruction,
                  std::memory_order_relaxed);
}

program::Position Interpreter::position() const {
  const std::uint64_t packed = position_.load(std::memory_order_relaxed);
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

void Interpreter::collective(const Instruction& instruction, std::int64_t layer) {
  Communicator* group =
      instruction.group == program::Group::data_parallel ? data_parallel_ : tensor_parallel_;
  if (group == nullptr) {
    throw CommunicationError(fmt::format("{} over {} ranks without a communicator",
                                         program::name_of(instruction.op),
                                         program::name_of(instruction.group)));
  }
  device_.synchronize();
  group->set_activity(position_text());
  Tensor whole = operand(instruction, program::whole_operand(instruction.op), layer);
  whole.elements = instruction.dims[0];
  switch (instruction.op) {
    case Op::all_reduce:
      group->all_reduce(whole,
                        (instruction.flags & program::kMaximum) != 0 ? Reduction::maximum : Reduction::sum);
      break;
    case Op::reduce_scatter:
      group->reduce_scatter(whole);
      break;
    case Op::all_gather: {
      Tensor own = operand(instruction, 0, layer);
      own.elements = div_exact(instruction.dims[0], group->size());
      group->all_gather(own, whole);
      break;
    }
    default:
      group->broadcast(whole, 0);
  }
}

void Interpreter::kernel(const Instruction& instruction, Registers registers, const StepSettings& settings) {
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
  // A kernel that does not end cannot be asked where it is.
  Communicator* group = data_parallel_ != nullptr ? data_parallel_ : tensor_parallel_;
  if (group != nullptr) group->set_activity(position_text());
  device_.execute(kernel, settings, instruction.stream);
}

std::int64_t Interpreter::instance_of(BufferId buffer, std::int64_t layer) const {
  const program::Buffer& description = program_.buffers[buffer];
  const std::int64_t index = (layer - description.first_layer) % description.instances;
  return index < 0 ? index + description.instances : index;
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
