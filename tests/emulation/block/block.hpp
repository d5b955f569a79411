#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

// A block of a CUDA kernel on the host: its threads (lanes) are fibers of one thread, of which one runs until it waits
// at a barrier or for other lanes of its warp. The order in which lanes run is chosen from outside, so that what the
// order must not decide is found by changing it.
namespace zeroplan::emulation {

struct Index3 {
  unsigned x = 1, y = 1, z = 1;
};

enum class LaneOrder : std::uint8_t { forward, reverse, random };

// For every grid that starts from now on, on any thread. Blocks follow each other in the same order as lanes, and a warp
// runs as far as it can before the next one does; at random some do. A random order depends on nothing but the seed.
void set_lane_order(LaneOrder order, std::uint64_t seed = 0);

// What a kernel did that CUDA leaves undefined or that ends in a hang: it names kernel, block and lanes.
class BlockError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct GridShape {
  Index3 grid, block;
  std::size_t shared_bytes = 0;
};

// Runs `kernel(self)` in every lane of every block. Shared memory of a block begins as bytes of 0xff, which is NaN in
// every type, and ends exactly after `shared_bytes`. Throws BlockError, and what the kernel throws.
void run_grid(const char* name, const GridShape& shape, void (*kernel)(const void* self), const void* self);

template <class Kernel>
void run_grid(const char* name, const GridShape& shape, const Kernel& kernel) {
  run_grid(
      name, shape, [](const void* self) { (*static_cast<const Kernel*>(self))(); }, &kernel);
}

// ---- what a lane calls ----

// Where a call stands, which is part of what lanes must agree on. As std::source_location, which clang 14 does not have.
struct CallPlace {
  const char* file = "";
  unsigned line = 0;

  static constexpr CallPlace current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    return {file, line};
  }
};

inline constexpr int kWarp = 32;

// Sees what every lane of a warp brought and answers to each of them, through the pointers that they brought; those of
// lanes that are not in the mask are null.
using Combine = void (*)(void* const* brought, unsigned mask);

// Waits until all lanes of `mask` are at this place, where the last one to come calls combine. Throws BlockError where
// the mask leaves the calling lane out, names lanes that do not exist, or meets another mask or operation.
void meet(const char* operation, unsigned mask, Combine combine, void* brought, const CallPlace& where);

// The same without an answer, and what its lanes did before comes before what they do behind it. Meetings of other
// kinds order nothing: CUDA does not say that shuffles and products do.
void order_warp(const char* operation, unsigned mask, const CallPlace& where);

// Waits until all lanes of the block are at this place; returns how many brought true. Throws BlockError where another
// lane waits at another place.
unsigned barrier(const char* operation, bool brought, const CallPlace& where);

// Of the running block.
std::byte* shared_memory();

// Of the running lane: its number in its warp.
unsigned lane_in_warp();

// Copies into shared memory that go on beside the lane (cp.async). They read and write at some time between their start
// and the wait for their group: with lanes forward as late, in reverse as early as can be, at random either. A lane must
// have waited for all of them when it ends.
void start_copy(void* to, const void* from, std::size_t bytes, std::size_t zeros);
void end_copy_group();
void wait_for_copies(unsigned groups_left);

[[noreturn]] void fail(const char* why);

}  // namespace zeroplan::emulation

// The indices of the running lane, as CUDA spells them.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): kernels find them under these names
extern thread_local constinit zeroplan::emulation::Index3 threadIdx, blockIdx, blockDim, gridDim;
