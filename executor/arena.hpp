#pragma once

#include <array>
#include <optional>
#include <vector>

#include "executor/caching_allocator.hpp"
#include "executor/device/device.hpp"
#include "executor/tensor.hpp"
#include "planner/program/measurement.hpp"
#include "planner/program/step_program.hpp"

namespace zeroplan::executor {

// What the planner laid out: the sizes of a rank's two blocks.
struct ArenaSize {
  Bytes device = 0;
  Bytes host = 0;
  bool contiguous = true;  // M_D: one block of each kind; off: each buffer from an ordinary allocator
};

using program::CategoryBytes;

// A rank's memory: one block of the device and one of the host, each used as a stack. States are acquired
// first and stay; everything else nests, so nothing fragments and the size of the block is the peak. Asking
// for more than was laid out, for what is held already, or giving back out of order is a DeviceError that
// names the buffer.
class Arena {
 public:
  Arena(Device& device, const program::StepProgram& program, ArenaSize size);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void acquire(program::BufferId buffer, std::int64_t instance);
  void release(program::BufferId buffer, std::int64_t instance);

  // The memory of an instance that is held; views are resolved. A DeviceError names what is not held.
  Tensor tensor(program::BufferId buffer, std::int64_t instance) const;

  ArenaSize size() const { return size_; }
  // Asked from the device.
  Bytes reserved(program::Space space) const;
  // The most that was held at once, and of what it was made.
  ArenaSize high_water() const { return {blocks_[0].high_water, blocks_[1].high_water}; }
  const CategoryBytes& at_high_water() const { return blocks_[0].at_high_water; }
  const CategoryBytes& at_host_high_water() const { return blocks_[1].at_high_water; }

 private:
  struct Held {
    program::BufferId buffer;
    std::int64_t instance;
  };
  struct Block {
    std::byte* memory = nullptr;
    std::optional<CachingAllocator> allocator;  // instead of `memory`
    Bytes capacity = 0;
    Bytes used = 0;
    Bytes high_water = 0;
    CategoryBytes by_category{};
    CategoryBytes at_high_water{};
    std::vector<Held> held;
  };

  Block& block_of(program::BufferId buffer);
  std::string label(program::BufferId buffer, std::int64_t instance) const;

  Device& device_;
  const program::StepProgram& program_;
  ArenaSize size_;
  std::array<Block, 2> blocks_;                     // device, host
  std::vector<std::vector<std::byte*>> instances_;  // by buffer; empty for views
};

}  // namespace zeroplan::executor
