#pragma once

#include <map>
#include <memory>
#include <vector>

#include "executor/device/device.hpp"

namespace zeroplan::executor {

// An ordinary allocator, for plans without contiguous memory (M_D off): it takes segments from the device,
// gives out the smallest free block that is large enough, and keeps segments to itself until it ends. So
// blocks of the wrong size stay between what is held, as with the allocators of training frameworks. Its
// sizes are those of PyTorch's CUDA allocator (c10/cuda/CUDACachingAllocator.cpp): blocks of 512 bytes; up to
// 1 MiB from segments of 2 MiB, up to 10 MiB from segments of 20 MiB, larger ones from segments of their own
// in steps of 2 MiB.
class CachingAllocator {
 public:
  CachingAllocator(Device& device, program::Space space) : device_(device), space_(space) {}
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // Throws DeviceError when the device has no more.
  std::byte* allocate(Bytes bytes);
  // Requires a block that allocate() gave and that was not given back.
  void deallocate(std::byte* memory);

  // Taken from the device, never given back before the end.
  Bytes reserved() const { return reserved_; }

 private:
  struct Block {
    Bytes bytes = 0;
    std::size_t segment = 0;
    bool is_free = false;
  };
  struct Segment {
    std::byte* memory = nullptr;
    Bytes bytes = 0;
    bool small = false;
  };
  using Blocks = std::map<std::byte*, Block>;

  Blocks::iterator smallest_free(Bytes bytes, bool small);
  Blocks::iterator add_segment(Bytes bytes, bool small);
  void join_next(Blocks::iterator block);

  Device& device_;
  program::Space space_;
  std::vector<Segment> segments_;
  Blocks blocks_;  // of all segments, by address
  Bytes reserved_ = 0;
};

}  // namespace zeroplan::executor
