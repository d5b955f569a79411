#include "runtime/fence.hpp"

#ifdef ZEROPLAN_EMULATION_FENCES

#include <sanitizer/asan_interface.h>

#include <algorithm>

namespace zeroplan::emulation {

namespace {

// Tests of 64-bit indices have larger ones, whose shadow alone would be hundreds of megabytes.
constexpr std::size_t kLargestFenced = std::size_t{256} << 20;
// Behind an allocation, inside its last granule.
constexpr std::size_t kBehind = 4096;

}  // namespace

Fence::Fence(const Memory& memory, std::span<const Range> ranges) {
  for (const Range& range : ranges) {
    const auto found = range.bytes > 0 ? memory.find(range.begin) : std::nullopt;
    if (!found || found->allocation.pinned || found->allocation.bytes > kLargestFenced) continue;
    const std::size_t granules = (found->allocation.bytes + kGranularity - 1) / kGranularity * kGranularity;
    const std::span<const std::byte> whole{host(reinterpret_cast<const std::byte*>(found->begin)),
                                           std::min(found->allocation.bytes + kBehind, granules)};
    const bool known = std::any_of(fenced_.begin(), fenced_.end(),
                                   [&](const auto& other) { return other.data() == whole.data(); });
    if (!known) fenced_.push_back(whole);
  }
  for (const auto& whole : fenced_) ASAN_POISON_MEMORY_REGION(whole.data(), whole.size());
  for (const Range& range : ranges) {
    if (range.bytes > 0) ASAN_UNPOISON_MEMORY_REGION(host(range.begin), range.bytes);
  }
}

Fence::~Fence() {
  for (const auto& whole : fenced_) ASAN_UNPOISON_MEMORY_REGION(whole.data(), whole.size());
}

}  // namespace zeroplan::emulation

#endif
