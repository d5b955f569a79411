#pragma once

#include <memory>
#include <vector>

#if defined(ZEROPLAN_TSAN_FIBERS)
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

// What the thread sanitizer is told of a block: each lane is a thread of its own, and only barriers order lanes. So what
// a missing barrier leaves without order is a data race, whatever the order in which lanes ran. Without that sanitizer
// all of this is nothing. The emulator's own sources are compiled without it (ZEROPLAN_TSAN_FIBERS): what they do is no
// part of a kernel.
namespace zeroplan::emulation {

#if defined(ZEROPLAN_TSAN_FIBERS)

class Identity {
 public:
  // That of who calls.
  Identity() : fiber_(__tsan_get_current_fiber(), Nothing{}) {}
  static Identity another() { return Identity(Fiber(__tsan_create_fiber(0), __tsan_destroy_fiber)); }

  // From now on, what this thread does is done by this one, and nothing that was done before comes before it.
  void become() const { __tsan_switch_to_fiber(fiber_.get(), __tsan_switch_to_fiber_no_sync); }

 private:
  struct Nothing {
    void operator()(void*) const {}
  };
  using Fiber = std::shared_ptr<void>;
  explicit Identity(Fiber fiber) : fiber_(std::move(fiber)) {}

  Fiber fiber_;
};

// All that was done before a release comes before what follows an acquire of the same place.
class Ordering {
 public:
  void release() { __tsan_release(&place_); }
  void acquire() { __tsan_acquire(&place_); }

 private:
  char place_ = 0;
};

// What its thread does while there is one is not looked at.
class Unwatched {
 public:
  Unwatched() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Unwatched() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;
  Unwatched(Unwatched&&) = delete;
  Unwatched& operator=(Unwatched&&) = delete;
};

#else

class Identity {
 public:
  static Identity another() { return {}; }
  void become() const {}
};
class Ordering {
 public:
  void release() {}
  void acquire() {}
};
class Unwatched {
 public:
  // NOLINTNEXTLINE(modernize-use-equals-default): it is used by standing there
  Unwatched() {}
};

#endif

// One for each lane of the blocks that this thread runs: making them takes longer than a small grid does.
inline const Identity& identity_of_lane(std::size_t lane) {
  static thread_local std::vector<Identity> all;
  while (all.size() <= lane) all.push_back(Identity::another());
  return all[lane];
}

}  // namespace zeroplan::emulation
