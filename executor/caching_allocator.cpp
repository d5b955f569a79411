#include "executor/caching_allocator.hpp"

#include <algorithm>
#include <iterator>

namespace zeroplan::executor {

namespace {

constexpr Bytes kPieceBytes = 512;
constexpr Bytes kSmallBytes = kMiB;  // pieces up to here share small segments
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

CachingAllocator::Pieces::iterator CachingAllocator::smallest_free(Bytes bytes, bool small) {
  auto best = pieces_.end();
  for (auto piece = pieces_.begin(); piece != pieces_.end(); ++piece) {
    const Piece& candidate = piece->second;
    if (!candidate.is_free || candidate.bytes < bytes || segments_[candidate.segment].small != small)
      continue;
    if (best == pieces_.end() || candidate.bytes < best->second.bytes) best = piece;
  }
  return best;
}

CachingAllocator::Pieces::iterator CachingAllocator::add_segment(Bytes bytes, bool small) {
  const Bytes whole = segment_bytes(bytes);
  std::byte* memory = device_.allocate(whole, space_);
  segments_.push_back({memory, whole, small});
  reserved_ += whole;
  return pieces_.emplace(memory, Piece{whole, segments_.size() - 1, true}).first;
}

std::byte* CachingAllocator::allocate(Bytes bytes) {
  const Bytes rounded = std::max(kPieceBytes, round_up(bytes, kPieceBytes));
  const bool small = rounded <= kSmallBytes;
  auto piece = smallest_free(rounded, small);
  if (piece == pieces_.end()) piece = add_segment(rounded, small);
  piece->second.is_free = false;
  const Bytes rest = piece->second.bytes - rounded;
  if (rest >= (small ? kPieceBytes : kSmallBytes + kPieceBytes)) {
    piece->second.bytes = rounded;
    pieces_.emplace(piece->first + rounded, Piece{rest, piece->second.segment, true});
  }
  return piece->first;
}

void CachingAllocator::join_next(Pieces::iterator piece) {
  const auto next = std::next(piece);
  if (next == pieces_.end() || !next->second.is_free || next->second.segment != piece->second.segment) return;
  piece->second.bytes += next->second.bytes;
  pieces_.erase(next);
}

void CachingAllocator::deallocate(std::byte* memory) {
  const auto piece = pieces_.find(memory);
  piece->second.is_free = true;
  join_next(piece);
  if (piece == pieces_.begin()) return;
  const auto before = std::prev(piece);
  if (before->second.is_free && before->second.segment == piece->second.segment) join_next(before);
}

}  // namespace zeroplan::executor
