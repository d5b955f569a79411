#pragma once

#include <initializer_list>
#include <vector>

#include "planner/program/step_program.hpp"

namespace zeroplan::program {

inline Operand at(BufferId buffer, std::int8_t layer_offset = 0, std::int8_t iteration_offset = 0) {
  return {buffer, layer_offset, iteration_offset};
}

// How many equal parts a buffer has, and the layer that the first belongs to.
struct Instances {
  std::int64_t count = 1;  // for each micro-batch in flight
  std::int32_t first_layer = 0;
  std::int64_t slots = 1;  // micro-batches in flight
};

// Appends to a StepProgram. Keeps no state of its own beyond the flags that go on what is emitted.
class Builder {
 public:
  Builder(StepProgram& program, Bytes alignment_bytes)
      : program_(program), alignment_bytes_(alignment_bytes) {}

  // kNoBuffer when `elements` is 0: such a buffer is never acquired, and operands that name it are left out.
  BufferId buffer(std::string_view name, DataType type, Category category, Elements elements,
                  Instances instances = {}, Space space = Space::device);
  // Marks a buffer as held by the engine only (Buffer::reserved).
  BufferId reserve(BufferId buffer);
  // A part of `parent`: the same instances, `elements` from `offset` on.
  BufferId view(std::string_view name, BufferId parent, Elements offset, Elements elements);

  void acquire(Operand operand) { memory(Op::acquire, operand); }
  void release(Operand operand) { memory(Op::release, operand); }
  void acquire_all(BufferId buffer) { memory(Op::acquire_all, at(buffer)); }
  void release_all(BufferId buffer) { memory(Op::release_all, at(buffer)); }

  // Operands of kNoBuffer are kept in their place: an instruction's operands are positional. On the stream that is
  // usual for its class.
  Instruction& emit(Op op, std::initializer_list<std::int64_t> dims, std::initializer_list<Operand> operands);
  // A collective over `elements`; nothing for kNoGroup, a group of one rank. On the compute stream kernels wait for it.
  void collective(Op op, GroupId group, Elements elements, std::initializer_list<Operand> operands,
                  std::uint8_t flags = 0, Stream stream = Stream::compute);

  // The same over the ranks that hold one layer together.
  void tensor_collective(Op op, Elements elements, std::initializer_list<Operand> operands,
                         std::uint8_t flags = 0, Stream stream = Stream::compute) {
    collective(op, program_.find_group(GroupKind::tensor_parallel), elements, operands, flags, stream);
  }

  // This rank among those.
  std::int64_t tensor_rank() const { return program_.group(GroupKind::tensor_parallel).rank; }

  void wait_for_all() { emit(Op::wait_for_all, {}, {}); }
  void phase(Phase phase) { emit(Op::phase, {static_cast<std::int64_t>(phase)}, {}); }

  // `body` for `count` layers: layer register + first, + first + step, ... A count of 0 emits nothing.
  template <class Body>
  void layers(std::int64_t count, std::int64_t first, std::int64_t step, Body&& body) {
    if (count > 0) loop(count, first, step, body);
  }

  // `body` `count` times for the same layer: micro-batches, chunks.
  template <class Body>
  void times(std::int64_t count, Body&& body) {
    if (count == 1) {
      body();
    } else if (count > 1) {
      loop(count, 0, 0, body);
    }
  }

  // What `body` emits is a section of the program.
  template <class Body>
  void section(SectionKind kind, Body&& body) {
    const std::size_t index = program_.sections.size();
    program_.sections.push_back({kind, static_cast<std::uint32_t>(program_.code.size()), 0});
    body();
    program_.sections[index].end = static_cast<std::uint32_t>(program_.code.size());
  }

  // While it lives, what is emitted carries kRecomputed.
  class Recomputing {
   public:
    explicit Recomputing(Builder& builder) : builder_(builder) { builder_.flags_ |= kRecomputed; }
    ~Recomputing() { builder_.flags_ &= static_cast<std::uint8_t>(~kRecomputed); }
    Recomputing(const Recomputing&) = delete;
    Recomputing& operator=(const Recomputing&) = delete;

   private:
    Builder& builder_;
  };

  bool is_recomputing() const { return (flags_ & kRecomputed) != 0; }

  StepProgram& program() { return program_; }
  const Buffer& operator[](BufferId id) const { return program_.buffers[id]; }

 private:
  void memory(Op op, Operand operand);

  template <class Body>
  void loop(std::int64_t count, std::int64_t first, std::int64_t step, Body& body) {
    const std::size_t begin = program_.code.size();
    emit(Op::repeat, {count, first, step, 0}, {});
    body();
    program_.code[begin].dims[3] = static_cast<std::int64_t>(program_.code.size());
    emit(Op::end_repeat, {}, {});
  }

  StepProgram& program_;
  Bytes alignment_bytes_;
  std::uint8_t flags_ = 0;
};

// Buffers acquired one after another, to be released in reverse order, as the arena's stack wants it.
// Remembers what it acquired, so that backward code can release what forward code kept.
class Scope {
 public:
  explicit Scope(Builder& builder) : builder_(&builder) {}

  // Nothing for kNoBuffer.
  void acquire(Operand operand) {
    if (operand.buffer == kNoBuffer) return;
    builder_->acquire(operand);
    held_[count_++] = operand;
  }
  void release() const {
    for (std::size_t i = count_; i-- > 0;) builder_->release(held_[i]);
  }

 private:
  Builder* builder_;
  std::array<Operand, 20> held_{};
  std::size_t count_ = 0;
};

}  // namespace zeroplan::program
