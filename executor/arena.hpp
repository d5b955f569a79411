#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "executor/caching_allocator.hpp"
#include "executor/device/device.hpp"
#include "executor/tensor.hpp"
#include "planner/program/block_places.hpp"
#include "planner/program/measurement.hpp"
#include "planner/program/step_program.hpp"

namespace zeroplan::executor {

// What the planner laid out: the sizes of a rank's two blocks.
struct ArenaSize {
  Bytes device = 0;
  Bytes host = 0;
  bool contiguous = true;  // M_D: one block of each kind; off: each buffer from an ordinary allocator
  // What is written is measured from the start until end_observation(). Memory is then counted in units of
  // `unit`: what the plan's allocator aligns buffers to.
  bool observed = false;
  Bytes unit = 1;
};

using program::CategoryBytes;

// Gives a block back to the device that it is from.
struct GiveBack {
  Device* device = nullptr;
  Bytes bytes = 0;
  program::Space space = program::Space::device;
  void operator()(std::byte* memory) const { device->deallocate(memory, bytes, space); }
};

// A rank's memory: one block of the device and one of the host. States are acquired first and stay; what nests is a stack
// above them, so nothing fragments and the size of the block is the peak; what does not nest takes the lowest place that is
// free (planner/program/block_places.hpp), the same in every step. Asking for more than was laid out, for what is held
// already, or giving back what is not held is a DeviceError that names the buffer.
//
// While it is observed, each instance is filled with a pattern when its life begins, and what of it was written
// is counted when it ends: so figures of memory are of what was used, not of what the table of buffers
// says. Contents of memory that was just acquired mean nothing, observed or not. Between the instances of an
// observed arena's block there are a few bytes that nobody may write: when a life that began while it was observed
// ends, or check_held() is called, a change of them is a DeviceError that names it. While
// it is observed nothing may run beside what begins and ends lives; later the arena touches no memory itself.
// Buffers that the plan's engine alone holds (Buffer::reserved) have a place that nothing touches: using one is a
// DeviceError.
class Arena {
 public:
  Arena(Device& device, const program::StepProgram& program, ArenaSize size);
  ~Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // From an acquire to its release.
  struct Life {
    program::BufferId buffer = program::kNoBuffer;
    std::int64_t instance = 0;
    std::byte* memory = nullptr;
    std::uint64_t acquired = 0;  // number of the acquisition, from 1
    std::uint64_t released = 0;  // how many there had been when it was released
  };

  // They find places, which are the same each time the same is acquired and released in the same order. Contents are not
  // touched.
  Life acquire(program::BufferId buffer, std::int64_t instance);
  Life release(program::BufferId buffer, std::int64_t instance);

  // While it is observed: when what was acquired begins to be used, and is not any more. The whole step must have been
  // acquired and released before, so that its high water is known.
  void begin_life(const Life& life);
  void end_life(const Life& life);

  // The memory of an instance that is held; views are resolved. A DeviceError names what is not held.
  Tensor tensor(program::BufferId buffer, std::int64_t instance) const;

  // From here on nothing is filled or counted. Requires that the step in which the peak is has run.
  void end_observation();
  bool observing() const { return observing_; }
  // What was written of that which was held at the peak, device and host. Requires end_observation().
  const CategoryBytes& written_at_high_water() const { return blocks_[0].written_at_high_water; }
  const CategoryBytes& written_at_host_high_water() const { return blocks_[1].written_at_high_water; }
  // Whether something was written past the end of what is held now.
  void check_held() const;

  ArenaSize size() const { return size_; }
  // Asked from the device.
  Bytes reserved(program::Space space) const;
  // And beside that, for the zones that nobody may write.
  Bytes zone_bytes(program::Space space) const;
  // The most that was held at once, and of what it was made.
  ArenaSize high_water() const { return {blocks_[0].high_water, blocks_[1].high_water}; }
  const CategoryBytes& at_high_water() const { return blocks_[0].at_high_water; }
  const CategoryBytes& at_host_high_water() const { return blocks_[1].at_high_water; }

 private:
  struct Block {
    std::unique_ptr<std::byte, GiveBack> memory;
    std::optional<CachingAllocator> allocator;  // instead of `memory`
    Bytes capacity = 0;                         // laid out
    Bytes bytes = 0;                            // asked from the device
    Bytes used = 0;
    Bytes high_water = 0;
    CategoryBytes by_category{};
    CategoryBytes at_high_water{};
    // Of what was held at the high water and has been released since.
    CategoryBytes written_at_high_water{};
    std::uint64_t high_water_number = 0;  // of the acquisition that reached it
    program::BlockPlaces places;
    std::vector<Life> held;
  };

  Block& block_of(program::BufferId buffer);
  void count_written(const Life& life);
  void check_zone(const Life& life) const;
  bool zoned() const { return size_.observed && size_.contiguous; }
  program::BlockSizes block_sizes() const;
  std::string label(program::BufferId buffer, std::int64_t instance) const;

  Device& device_;
  const program::StepProgram& program_;
  ArenaSize size_;
  bool observing_;
  std::uint64_t acquired_ = 0;
  std::uint64_t last_observed_ = 0;                 // number of the last acquisition that was
  std::array<Block, 2> blocks_;                     // device, host
  std::vector<std::vector<std::byte*>> instances_;  // by buffer; empty for views
};

}  // namespace zeroplan::executor
