#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "executor/communicator/ledger.hpp"
#include "executor/communicator/threads/thread_communicator.hpp"

// How ranks that are threads meet. For the implementation of threads/ only.
namespace zeroplan::executor::threads {

class ThreadGroup;

// What all groups that stem from one start share: whether it was stopped and why, and what each rank is
// doing.
class SharedRun {
 public:
  SharedRun(std::int64_t ranks, ThreadOptions options);

  const ThreadOptions& options() const { return options_; }
  std::int64_t ranks() const { return static_cast<std::int64_t>(presences_.size()); }

  // The first call counts: it wakes every rank that waits in any group. `origin` is the rank it came from.
  void stop(std::int64_t origin, const std::string& reason);
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }
  // Requires stopped().
  [[noreturn]] void throw_reason() const;
  std::int64_t origin() const;

  void set_activity(std::int64_t rank, Activity activity);
  // "rank 2 was at: matmul".
  std::string activity_text(std::int64_t rank) const;

  void wake_when_stopped(const std::shared_ptr<ThreadGroup>& group);

 private:
  struct Presence {
    mutable std::mutex mutex;
    Activity activity;  // empty: the rank has not said it
  };

  ThreadOptions options_;
  std::vector<Presence> presences_;
  std::atomic<bool> stopped_ = false;
  mutable std::mutex mutex_;  // guards what follows
  std::int64_t origin_ = 0;
  std::string reason_;
  std::vector<std::weak_ptr<ThreadGroup>> groups_;
};

// What a rank shows the others of its group during one call. Written before begin(), read by the others
// between begin() and finish(). A cache line each, because neighbours write theirs at the same time.
struct alignas(64) Slot {
  Call call;
  std::byte* whole = nullptr;
  const std::byte* own = nullptr;
  std::int64_t color = 0, key = 0;
  std::shared_ptr<ThreadGroup> child;
  std::atomic<std::uint64_t> arrivals = 0;  // at meetings of this group
};

// A message that a rank offers to another one, which copies it. A rank has one at a time.
struct Offer {
  enum class State : std::uint8_t { none, offered, copying, taken };

  State state = State::none;
  std::int64_t to = 0;
  Call call;
  const std::byte* data = nullptr;
};

// Ranks that meet. A call is two meetings: after begin() every rank has published its slot and all calls are
// alike, so memory may be read; after finish() nobody reads any more, so memory may be written or freed.
class ThreadGroup {
 public:
  // `members`: the ranks of the start that are in it, by their rank here; messages name those.
  ThreadGroup(std::shared_ptr<SharedRun> run, std::vector<std::int64_t> members);

  std::int64_t size() const { return static_cast<std::int64_t>(slots_.size()); }
  Slot& slot(std::int64_t rank) { return slots_[static_cast<std::size_t>(rank)]; }
  std::int64_t member(std::int64_t rank) const { return members_[static_cast<std::size_t>(rank)]; }
  const std::shared_ptr<SharedRun>& run() const { return run_; }

  // Throws CommunicationError when calls differ, a rank does not come within the timeout, or the run was
  // stopped; then every rank of the group throws, and no rank has gone on to read memory.
  void begin(std::int64_t rank);

  // Waits without a timeout and whether or not the run was stopped: all ranks are here and only copy, and
  // leaving early would pull memory from under the others' reads.
  void finish(std::int64_t rank);

  // Messages, which are calls of two ranks. They throw as begin() does. `give` returns when the other rank has copied
  // the message; `take` copies it and returns how many bytes that were.
  void give(std::int64_t rank, std::int64_t to, const Call& call, const std::byte* data);
  Bytes take(std::int64_t rank, std::int64_t from, const Call& call, std::byte* data);

  void wake();

 private:
  // Counts `rank` in. True for the last one, for whom the meeting is over.
  bool arrive(std::int64_t rank, std::uint64_t generation);
  bool spin_until_past(std::uint64_t generation) const;
  void wait_or_stop(std::int64_t rank, std::uint64_t generation);
  std::optional<std::string> who_is_missing(std::int64_t rank) const;
  void require_alike(std::int64_t rank);
  // Until `ready`, which is asked with the mutex held, as is the rest; a stopped run and the timeout throw.
  template <class Ready>
  void await(std::unique_lock<std::mutex>& lock, std::int64_t rank, std::int64_t other, const Call& call,
             const Ready& ready);
  [[noreturn]] void stop_out_of_step(std::int64_t rank, std::int64_t one, const Call& its, std::int64_t other,
                                     const Call& theirs);

  std::shared_ptr<SharedRun> run_;
  std::vector<std::int64_t> members_;
  std::vector<Slot> slots_;
  // A meeting ends when its last rank moves the generation on. A rank that leaves instead breaks the group
  // for good, so that all members leave the same meeting or none does.
  std::atomic<std::int64_t> arrived_ = 0;
  std::atomic<std::uint64_t> generation_ = 0;
  std::mutex mutex_;  // guards what follows, and changes of generation_
  std::condition_variable woken_;
  bool broken_ = false;
  std::vector<Offer> offers_;  // by the rank that sends
};

// A communicator for each rank of `run`.
std::vector<std::unique_ptr<Communicator>> communicators_of(const std::shared_ptr<SharedRun>& run);

}  // namespace zeroplan::executor::threads
