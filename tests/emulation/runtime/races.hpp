#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/queue.hpp"

// Whether something orders operations that touch the same bytes: vector clocks over streams, which are known when an
// operation is queued and do not depend on when it runs (Fidge, Mattern: "timestamps in message-passing systems").
namespace zeroplan::emulation {

// How far each stream had come at some point, in operations.
class Clock {
 public:
  std::uint64_t of(std::size_t stream) const { return stream < ticks_.size() ? ticks_[stream] : 0; }
  // Returns the time of the new operation.
  std::uint64_t tick(std::size_t stream);
  void join(const Clock& other);

 private:
  std::vector<std::uint64_t> ticks_;
};

class Accesses {
 public:
  // Notes an operation of a stream, whose clock counts the operation itself. Returns a sentence for each earlier
  // operation that it conflicts with. `name` must last.
  std::vector<std::string> add(std::size_t stream, const Clock& clock, const char* name,
                               std::span<const Range> ranges);
  // The memory was given back.
  void forget(std::uintptr_t begin, std::size_t bytes);
  void clear() { parts_.clear(); }

 private:
  struct Access {
    std::size_t stream = 0;
    std::uint64_t time = 0;  // 0: none
    const char* name = nullptr;
  };
  struct Part {
    std::uintptr_t end = 0;
    Access written;
    std::vector<Access> read;  // since it was written; the last of each stream
  };

  void split(std::uintptr_t at);
  static bool ordered(const Access& earlier, const Clock& clock);

  std::map<std::uintptr_t, Part> parts_;  // by begin, disjoint
};

}  // namespace zeroplan::emulation
