#include "executor/caching_allocator.hpp"

#include <algorithm>
#include <iterator>

namespace zeroplan::executor {

namespace {

constexpr Bytes kBlockBytes = 512;
constexpr Bytes kSmallBytes = kMiB;  // blocks up to here share small segments
constexpr Bytes kSmallSegmentBytes = 2 * kMiB;
constexpr Bytes kMediumBytes = 10 * kMiB;
constexpr Bytes kMediumSegmentBytes = 20 * kMiB;
constexpr Bytes kLargeStepBytes = 2 * kMiB;

Bytes segment_bytes(Bytes bytes) {
  if (bytes <= kSmallBytes) return kSmallSegmentBytes;
  if (bytes < kMediumBytes) return kMediumSegmentBytes;
  return round_up(bytes, kLargeStepBytes);
}

}  // namespace

CachingAllocator::~CachingAllocator() {
  for (const Segment& segment : segments_) device_.deallocate(segment.memory, segment.bytes, space_);
}

CachingAllocator::Blocks::iterator CachingAllocator::smallest_free(Bytes bytes, bool small) {
  auto best = blocks_.end();
  for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
    const Block& candidate = block->second;
    if (!candidate.is_free || candidate.bytes < bytes || segments_[candidate.segment].small != small)
      continue;
    if (best == blocks_.end() || candidate.bytes < best->second.bytes) best = block;
  }
  return best;
}

CachingAllocator::Blocks::iterator CachingAllocator::add_segment(Bytes bytes, bool small) {
  const Bytes whole = segment_bytes(bytes);
  std::byte* memory = device_.allocate(whole, space_);
  segments_.push_back({memory, whole, small});
  reserved_ += whole;
  return blocks_.emplace(memory, Block{whole, segments_.size() - 1, true}).first;
}

std::byte* CachingAllocator::allocate(Bytes bytes) {
  const Bytes rounded = std::max(kBlockBytes, round_up(bytes, kBlockBytes));
  const bool small = rounded <= kSmallBytes;
  auto block = smallest_free(rounded, small);
  if (block == blocks_.end()) block = add_segment(rounded, small);
  block->second.is_free = false;
  const Bytes rest = block->second.bytes - rounded;
  if (rest >= (small ? kBlockBytes : kSmallBytes + kBlockBytes)) {
    block->second.bytes = rounded;
    blocks_.emplace(block->first + rounded, Block{rest, block->second.segment, true});
  }
  return block->first;
}

void CachingAllocator::join_next(Blocks::iterator block) {
  const auto next = std::next(block);
  if (next == blocks_.end() || !next->second.is_free || next->second.segment != block->second.segment) return;
  block->second.bytes += next->second.bytes;
  blocks_.erase(next);
}

void CachingAllocator::deallocate(std::byte* memory) {
  const auto block = blocks_.find(memory);
  block->second.is_free = true;
  join_next(block);
  if (block == blocks_.begin()) return;
  const auto before = std::prev(block);
  if (before->second.is_free && before->second.segment == block->second.segment) join_next(before);
}

}  // namespace zeroplan::executor
