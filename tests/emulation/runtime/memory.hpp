#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

// The memory of emulated GPUs, and pinned memory of the host.
//
// A device pointer lies in a range of addresses that nobody can read or write: code of the host that uses one gets
// SIGSEGV, as on a machine with a GPU. The memory itself is at a constant distance from there (host_distance()), with
// pages before and behind it that nobody has. New memory is filled with 0xff, which is NaN in fp32, fp16 and bf16.
namespace zeroplan::emulation {

// cudaMalloc takes memory from the driver in this granularity.
inline constexpr std::size_t kGranularity = std::size_t{2} << 20;

struct Allocation {
  std::size_t bytes = 0;  // asked for
  int device = 0;         // whose it is; of pinned memory: the current one when it was made
  bool pinned = false;
};

// Not safe for concurrent use: the engine guards it.
class Memory {
 public:
  Memory();
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Returns nullptr where the system has no more; the capacity is the engine's to judge.
  void* allocate(std::size_t bytes, int device);
  void* allocate_pinned(std::size_t bytes, int device);
  // False for what is no start of an allocation of that kind.
  bool release(void* pointer, bool pinned);
  void release_all();

  struct Found {
    std::uintptr_t begin = 0;
    Allocation allocation;
  };
  // What a pointer is inside of.
  std::optional<Found> find(const void* pointer) const;
  // Whether the range lies inside one allocation, of a device or pinned.
  bool holds(const void* begin, std::size_t bytes) const;
  // Taken from a device, in whole granules.
  std::size_t used(int device) const;
  const std::map<std::uintptr_t, Allocation>& allocations() const { return allocations_; }

 private:
  std::map<std::uintptr_t, Allocation> allocations_;
  std::uintptr_t next_ = 0;  // addresses are never used twice
};

}  // namespace zeroplan::emulation
