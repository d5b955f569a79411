#include "planner/program/builder.hpp"

#include <stdexcept>

#include "planner/instructions/table.hpp"

namespace zeroplan::program {

BufferId Builder::buffer(std::string_view name, DataType type, Category category, Elements elements,
                         Instances instances, Space space) {
  if (elements == 0 || instances.count == 0) return kNoBuffer;
  Buffer& buffer = program_.buffers.emplace_back();
  buffer.name = name;
  buffer.type = type;
  buffer.category = category;
  buffer.space = space;
  buffer.first_layer = instances.first_layer;
  buffer.instances = instances.count * instances.slots;
  buffer.slots = instances.slots;
  buffer.elements = elements;
  buffer.bytes = round_up(elements * bytes_of(type), alignment_bytes_);
  return static_cast<BufferId>(program_.buffers.size() - 1);
}

BufferId Builder::reserve(BufferId buffer) {
  if (buffer != kNoBuffer) program_.buffers[buffer].reserved = true;
  return buffer;
}

BufferId Builder::view(std::string_view name, BufferId parent, Elements offset, Elements elements) {
  if (parent == kNoBuffer || elements == 0) return kNoBuffer;
  Buffer view = program_.buffers[parent];
  if (view.parent != kNoBuffer) {
    offset += view.offset;
    parent = view.parent;
  }
  view.name = name;
  view.parent = parent;
  view.offset = offset;
  view.elements = elements;
  view.bytes = 0;
  program_.buffers.push_back(view);
  return static_cast<BufferId>(program_.buffers.size() - 1);
}

Instruction& Builder::emit(Op op, std::initializer_list<std::int64_t> dims,
                           std::initializer_list<Operand> operands) {
  Instruction& instruction = program_.code.emplace_back();
  instruction.op = op;
  instruction.stream = usual_stream(class_of(op));
  instruction.flags = flags_;
  std::size_t i = 0;
  for (const std::int64_t dim : dims) instruction.dims[i++] = dim;
  i = 0;
  for (const Operand operand : operands) instruction.operands[i++] = operand;
  return instruction;
}

void Builder::collective(Op op, GroupId group, Elements elements, std::initializer_list<Operand> operands,
                         std::uint8_t flags, Stream stream) {
  if (group == kNoGroup) return;
  Instruction& instruction = emit(op, {elements}, operands);
  instruction.group = group;
  instruction.stream = stream;
  instruction.flags |= flags;
}

void Builder::memory(Op op, Operand operand) {
  if (operand.buffer == kNoBuffer) return;
  emit(op, {}, {operand});
}

}  // namespace zeroplan::program
