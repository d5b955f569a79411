#include "planner/program/block_places.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <stdexcept>
#include <vector>

#include "planner/instructions/table.hpp"
#include "planner/program/instances.hpp"

namespace zeroplan::program {

Bytes BlockPlaces::take(Bytes bytes) {
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    const auto [offset, free] = *gap;
    if (free < bytes) continue;
    gaps_.erase(gap);
    if (free > bytes) gaps_.emplace(offset + bytes, free - bytes);
    return offset;
  }
  const Bytes offset = top_;
  top_ += bytes;
  size_ = std::max(size_, top_);
  return offset;
}

void BlockPlaces::give_back(Bytes offset, Bytes bytes) {
  auto next = gaps_.upper_bound(offset);
  if (next != gaps_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      gaps_.erase(before);
    }
  }
  if (next != gaps_.end() && offset + bytes == next->first) {
    bytes += next->second;
    gaps_.erase(next);
  }
  if (offset + bytes == top_) {
    top_ = offset;
  } else {
    gaps_.emplace(offset, bytes);
  }
}

namespace {

// Takes and gives back what the unrolled step does.
class Walk {
 public:
  Walk(const StepProgram& program, Bytes beside)
      : program_(program), beside_(beside), offsets_(program.buffers.size()) {
    for (std::size_t b = 0; b < offsets_.size(); ++b) {
      offsets_[b].assign(static_cast<std::size_t>(program.buffers[b].instances), kFree);
    }
  }

  BlockSizes sizes() {
    run(0, program_.code.size(), 0, 0);
    return {blocks_[0].size(), blocks_[1].size()};
  }

 private:
  static constexpr Bytes kFree = -1;

  void run(std::size_t begin, std::size_t end, std::int64_t layer, std::int64_t iteration) {
    for (std::size_t i = begin; i < end; ++i) {
      const Instruction& instruction = program_.code[i];
      if (instruction.op == Op::repeat) {
        const auto [count, first, step, close] = instruction.dims;
        for (std::int64_t k = 0; k < count; ++k) {
          run(i + 1, static_cast<std::size_t>(close), step == 0 ? layer : layer + first + k * step,
              step == 0 ? k : iteration);
        }
        i = static_cast<std::size_t>(close);
      } else if (is_memory(instruction.op)) {
        memory(instruction, layer, iteration);
      }
    }
  }

  void memory(const Instruction& instruction, std::int64_t layer, std::int64_t iteration) {
    const bool takes = row_of(instruction.op).takes.sign > 0;
    for_each_taken(program_, instruction, layer, iteration, [&](BufferId id, std::int64_t instance) {
      const Buffer& buffer = program_.buffers[id];
      BlockPlaces& places = blocks_[static_cast<std::size_t>(buffer.space)];
      Bytes& offset = offsets_[id][static_cast<std::size_t>(instance)];
      if (takes != (offset == kFree)) throw std::logic_error("block_sizes: taken twice, or given back twice");
      if (takes) {
        offset = places.take(buffer.bytes + beside_);
      } else {
        places.give_back(offset, buffer.bytes + beside_);
        offset = kFree;
      }
    });
  }

  const StepProgram& program_;
  Bytes beside_;
  std::array<BlockPlaces, 2> blocks_;
  std::vector<std::vector<Bytes>> offsets_;  // by buffer, by instance
};

}  // namespace

BlockSizes block_sizes(const StepProgram& program, Bytes beside) { return Walk(program, beside).sizes(); }

}  // namespace zeroplan::program
