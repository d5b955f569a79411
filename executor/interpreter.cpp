#include "executor/interpreter.hpp"

#include <fmt/format.h>

#include "executor/error.hpp"

namespace zeroplan::executor {

using program::BufferId;
using program::Instruction;
using program::Op;
using program::Phase;

Interpreter::Interpreter(const program::StepProgram& program, Device& device, Arena& arena,
                         Communicator* data_parallel, Communicator* tensor_parallel)
    : program_(program),
      device_(device),
      arena_(arena),
      data_parallel_(data_parallel),
      tensor_parallel_(tensor_parallel) {
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

void Interpreter::setup() { run(0, first_after_setup_, {}, {}, nullptr); }

void Interpreter::step(const StepSettings& settings, BatchSource& batches) {
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
          }
          run(i + 1, static_cast<std::size_t>(close), inner, settings, batches);
        }
        i = static_cast<std::size_t>(close);
        break;
      }
      case Op::end_repeat:
      case Op::phase:
        break;
      case Op::acquire:
      case Op::release:
      case Op::acquire_all:
      case Op::release_all:
        memory(instruction, registers.layer);
        break;
      case Op::load_batch:
        batches->next(operand(instruction, 0, registers.layer).as<std::int32_t>(),
                      operand(instruction, 1, registers.layer).as<std::int32_t>());
        break;
      case Op::all_reduce:
      case Op::reduce_scatter:
      case Op::all_gather:
      case Op::broadcast:
        collective(instruction, registers.layer);
        break;
      default:
        kernel(instruction, registers, settings);
    }
  }
}

void Interpreter::memory(const Instruction& instruction, std::int64_t layer) {
  const BufferId buffer = instruction.operands[0].buffer;
  const std::int64_t instances = program_.buffers[buffer].instances;
  const std::int64_t one = instance_of(buffer, layer + instruction.operands[0].layer_offset);
  switch (instruction.op) {
    case Op::acquire:
      arena_.acquire(buffer, one);
      break;
    case Op::release:
      arena_.release(buffer, one);
      break;
    case Op::acquire_all:
      for (std::int64_t i = 0; i < instances; ++i) arena_.acquire(buffer, i);
      break;
    default:
      for (std::int64_t i = instances; i-- > 0;) arena_.release(buffer, i);
  }
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
  group->set_activity(fmt::format("{} of layer {}", program::name_of(instruction.op), layer));
  Tensor whole = operand(instruction, instruction.op == Op::all_gather ? 1 : 0, layer);
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
  kernel.counts_replicated = program_.tensor_parallel.rank == 0;
  kernel.dims = instruction.dims;
  for (std::size_t i = 0; i < program::kMaxOperands; ++i) {
    kernel.operands[i] = operand(instruction, i, registers.layer);
  }
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

void Interpreter::set_scalar(program::Scalar scalar, float value) {
  scalars().as<float>()[static_cast<std::size_t>(scalar)] = value;
}

}  // namespace zeroplan::executor
