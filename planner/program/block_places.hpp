#pragma once

#include <map>

#include "planner/program/step_program.hpp"

// Where buffers are in a rank's two blocks of memory. What is acquired and released may be so in any order; as it is the
// same in every step, places are found before the run, and a block is as large as they need.
namespace zeroplan::program {

// The places of one block. Each is the lowest that is free and large enough: what nests is a stack, and the block as large
// as the most that is held at once; what does not nest fills gaps that others left.
class BlockPlaces {
 public:
  // The offset of `bytes` that are free.
  Bytes take(Bytes bytes);
  void give_back(Bytes offset, Bytes bytes);
  // The highest end of a place so far.
  Bytes size() const { return size_; }

 private:
  std::map<Bytes, Bytes> gaps_;  // offset and bytes of what is free below `top_`; no two touch
  Bytes top_ = 0;                // end of the highest place that is held
  Bytes size_ = 0;
};

struct BlockSizes {
  Bytes device = 0, host = 0;
};

// What the blocks must hold so that everything that a step acquires finds its place, with `beside` bytes behind each
// instance.
BlockSizes block_sizes(const StepProgram& program, Bytes beside = 0);

}  // namespace zeroplan::program
