#include "tests/support/unrolled.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace zeroplan::test {

using program::Instruction;
using program::Op;
using program::StepProgram;

namespace {

struct Walk {
  const StepProgram& program;
  const std::function<void(std::size_t, const Instruction&, std::int64_t, std::int64_t, program::Phase)>&
      visit;
  program::Phase phase = program::Phase::setup;

  void run(std::size_t begin, std::size_t end, std::int64_t layer, std::int64_t iteration) {
    for (std::size_t i = begin; i < end; ++i) {
      const Instruction& instruction = program.code[i];
      if (instruction.op == Op::phase) phase = static_cast<program::Phase>(instruction.dims[0]);
      if (instruction.op != Op::repeat) {
        visit(i, instruction, layer, iteration, phase);
        continue;
      }
      const auto close = static_cast<std::size_t>(instruction.dims[3]);
      for (std::int64_t k = 0; k < instruction.dims[0]; ++k) {
        const bool moves = instruction.dims[2] != 0;
        run(i + 1, close, moves ? layer + instruction.dims[1] + k * instruction.dims[2] : layer,
            moves ? iteration : k);
      }
      i = close;
    }
  }
};

}  // namespace

void for_each_executed(const StepProgram& program,
                       const std::function<void(std::size_t, const Instruction&, std::int64_t, std::int64_t,
                                                program::Phase)>& visit) {
  Walk{program, visit}.run(0, program.code.size(), 0, 0);
}

std::int64_t instance_of(const StepProgram& program, program::Operand operand, std::int64_t layer,
                         std::int64_t iteration) {
  const program::Buffer& buffer = program.buffers[operand.buffer];
  std::int64_t layers = buffer.instances;
  for (std::int64_t set = 1; set < buffer.slots; ++set) layers -= buffer.instances / buffer.slots;
  std::int64_t instance = layer + operand.layer_offset - buffer.first_layer;
  while (instance < 0) instance += layers;
  while (instance >= layers) instance -= layers;
  std::int64_t set = iteration + operand.iteration_offset;
  while (set < 0) set += buffer.slots;
  while (set >= buffer.slots) set -= buffer.slots;
  return set * layers + instance;
}

void for_each_taken(const StepProgram& program, const Instruction& instruction, std::int64_t layer,
                    std::int64_t iteration,
                    const std::function<void(program::BufferId, std::int64_t, bool)>& visit) {
  const program::Operand operand = instruction.operands[0];
  switch (instruction.op) {
    case Op::acquire:
      visit(operand.buffer, instance_of(program, operand, layer, iteration), true);
      break;
    case Op::release:
      visit(operand.buffer, instance_of(program, operand, layer, iteration), false);
      break;
    case Op::acquire_all:
      for (std::int64_t i = 0; i < program.buffers[operand.buffer].instances; ++i)
        visit(operand.buffer, i, true);
      break;
    case Op::release_all:
      for (std::int64_t i = program.buffers[operand.buffer].instances; i-- > 0;)
        visit(operand.buffer, i, false);
      break;
    default:
      break;
  }
}

void Arena::apply(const Instruction& instruction, std::int64_t layer, std::int64_t iteration) {
  for_each_taken(program_, instruction, layer, iteration,
                 [this](program::BufferId buffer, std::int64_t instance, bool acquires) {
                   acquires ? acquire({buffer, instance}) : release({buffer, instance});
                 });
}

bool Arena::holds(program::BufferId buffer, std::int64_t instance) const {
  const Item item{buffer, instance};
  return std::find(device_.rbegin(), device_.rend(), item) != device_.rend() ||
         std::find(host_.rbegin(), host_.rend(), item) != host_.rend();
}

void Arena::acquire(Item item) {
  const program::Buffer& buffer = program_.buffers[item.first];
  if (buffer.parent != program::kNoBuffer)
    throw std::runtime_error(fmt::format("a view is acquired: {}", buffer.name));
  if (holds(item.first, item.second)) {
    throw std::runtime_error(fmt::format("acquired twice: {}[{}]", buffer.name, item.second));
  }
  const bool device = buffer.space == program::Space::device;
  (device ? device_ : host_).push_back(item);
  (device ? device_bytes_ : host_bytes_) += buffer.bytes;
}

void Arena::release(Item item) {
  const program::Buffer& buffer = program_.buffers[item.first];
  const bool device = buffer.space == program::Space::device;
  std::vector<Item>& stack = device ? device_ : host_;
  if (stack.empty() || stack.back() != item) {
    throw std::runtime_error(fmt::format("released out of order: {}[{}]", buffer.name, item.second));
  }
  stack.pop_back();
  (device ? device_bytes_ : host_bytes_) -= buffer.bytes;
}

}  // namespace zeroplan::test
