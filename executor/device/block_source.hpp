#pragma once

#include <cstddef>

#include "planner/units.hpp"

namespace zeroplan::executor {

// Where a device's blocks come from where a library other than its runtime is to move them. Plain functions, as they may be
// a module's. Without them, and where `allocate` gives nullptr, the device allocates itself.
struct BlockSource {
  std::byte* (*allocate)(Bytes bytes) = nullptr;  // on the calling thread's device
  void (*deallocate)(std::byte* block) = nullptr;
};

}  // namespace zeroplan::executor
