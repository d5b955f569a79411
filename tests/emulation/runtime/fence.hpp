#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/memory.hpp"
#include "runtime/queue.hpp"

// Under the address sanitizer, what an operation did not declare is fenced off while it runs.
namespace zeroplan::emulation {

#if defined(__SANITIZE_ADDRESS__)
#define ZEROPLAN_EMULATION_FENCES
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ZEROPLAN_EMULATION_FENCES
#endif
#endif

#ifdef ZEROPLAN_EMULATION_FENCES
// Operations then run one at a time on the whole machine, since the sanitizer's view of memory is one for all threads.
inline constexpr bool kFences = true;

// While it lives, of each allocation of a device that holds one of the ranges only the ranges are addressable, to eight bytes.
// Other allocations stay as they are: a library's workspace is nobody's operand. An operation that waits for others
// (queue.hpp, `ready`) has no fence, as a collective reads what other ranks declared.
class Fence {
 public:
  Fence(const Memory& memory, std::span<const Range> ranges);
  ~Fence();
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;

 private:
  std::vector<std::span<const std::byte>> fenced_;
};
#else
inline constexpr bool kFences = false;

class Fence {
 public:
  Fence(const Memory& /*memory*/, std::span<const Range> /*ranges*/) {}
};
#endif

}  // namespace zeroplan::emulation
