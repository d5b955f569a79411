#include "runtime/races.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace zeroplan::emulation {

std::uint64_t Clock::tick(std::size_t stream) {
  if (stream >= ticks_.size()) ticks_.resize(stream + 1, 0);
  return ++ticks_[stream];
}

void Clock::join(const Clock& other) {
  if (other.ticks_.size() > ticks_.size()) ticks_.resize(other.ticks_.size(), 0);
  for (std::size_t i = 0; i < other.ticks_.size(); ++i) ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
}

bool Accesses::ordered(const Access& earlier, const Clock& clock) {
  return earlier.time == 0 || clock.of(earlier.stream) >= earlier.time;
}

// Makes `at` the border of two parts where it is inside of one.
void Accesses::split(std::uintptr_t at) {
  auto after = parts_.upper_bound(at);
  if (after == parts_.begin()) return;
  const auto part = std::prev(after);
  if (part->first == at || part->second.end <= at) return;
  Part rest = part->second;
  part->second.end = at;
  parts_.emplace_hint(after, at, std::move(rest));
}

std::vector<std::string> Accesses::add(std::size_t stream, const Clock& clock, const char* name,
                                       std::span<const Range> ranges) {
  std::vector<std::string> conflicts;
  const auto check = [&](const Access& earlier, const char* did, const Range& range, std::uintptr_t begin,
                         std::uintptr_t end) {
    if (ordered(earlier, clock)) return;
    const auto start = reinterpret_cast<std::uintptr_t>(range.begin);
    conflicts.push_back(
        fmt::format("nothing orders {} on stream {} and {} on stream {}: the first {} bytes {} to {} of a "
                    "range of {} that the second {}",
                    earlier.name, earlier.stream, name, stream, did, begin - start, end - start, range.bytes,
                    range.writes ? "writes" : "reads"));
  };
  const Access access{stream, clock.of(stream), name};
  for (const Range& range : ranges) {
    if (range.bytes == 0 || !(range.reads || range.writes)) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(range.begin);
    const std::uintptr_t end = begin + range.bytes;
    split(begin);
    split(end);
    std::uintptr_t at = begin;
    for (auto part = parts_.lower_bound(begin); at < end;) {
      if (part == parts_.end() || part->first > at) {
        const std::uintptr_t until = part == parts_.end() ? end : std::min(end, part->first);
        part = parts_.emplace_hint(part, at, Part{until, {}, {}});
      }
      Part& found = part->second;
      check(found.written, "writes", range, at, found.end);
      if (range.writes) {
        for (const Access& reader : found.read) check(reader, "reads", range, at, found.end);
        found.read.clear();
        found.written = access;
      } else {
        std::erase_if(found.read, [&](const Access& reader) { return reader.stream == stream; });
        found.read.push_back(access);
      }
      at = found.end;
      ++part;
    }
  }
  return conflicts;
}

void Accesses::forget(std::uintptr_t begin, std::size_t bytes) {
  split(begin);
  split(begin + bytes);
  parts_.erase(parts_.lower_bound(begin), parts_.lower_bound(begin + bytes));
}

}  // namespace zeroplan::emulation
