#include "executor/communicator/threads/group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "executor/communicator/failure.hpp"
#include "executor/error.hpp"

namespace zeroplan::executor::threads {

namespace {

// About 20 microseconds: longer than ranks in step need, short enough to leave the core to a rank that is
// late.
constexpr int kSpins = 60;

}  // namespace

SharedRun::SharedRun(std::int64_t ranks, ThreadOptions options)
    : options_(std::move(options)), presences_(static_cast<std::size_t>(ranks)) {}

void SharedRun::stop(std::int64_t origin, const std::string& reason) {
  std::vector<std::weak_ptr<ThreadGroup>> groups;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_.load(std::memory_order_relaxed)) return;
    origin_ = origin;
    reason_ = reason;
    stopped_.store(true, std::memory_order_release);
    groups.swap(groups_);
  }
  for (const auto& weak : groups) {
    if (const auto group = weak.lock()) group->wake();
  }
}

void SharedRun::throw_reason() const {
  const std::lock_guard lock(mutex_);
  throw CommunicationError(reason_);
}

std::int64_t SharedRun::origin() const {
  const std::lock_guard lock(mutex_);
  return origin_;
}

void SharedRun::set_activity(std::int64_t rank, Activity activity) {
  Presence& presence = presences_[static_cast<std::size_t>(rank)];
  const std::lock_guard lock(presence.mutex);
  presence.activity = std::move(activity);
}

std::string SharedRun::activity_text(std::int64_t rank) const {
  const Presence& presence = presences_[static_cast<std::size_t>(rank)];
  const std::lock_guard lock(presence.mutex);
  if (!presence.activity) return fmt::format("rank {} has not said what it does", rank);
  return fmt::format("rank {} was at: {}", rank, presence.activity());
}

void SharedRun::wake_when_stopped(const std::shared_ptr<ThreadGroup>& group) {
  const std::lock_guard lock(mutex_);
  std::erase_if(groups_, [](const auto& weak) { return weak.expired(); });
  groups_.push_back(group);
}

ThreadGroup::ThreadGroup(std::shared_ptr<SharedRun> run, std::vector<std::int64_t> members)
    : run_(std::move(run)), members_(std::move(members)), slots_(members_.size()), offers_(members_.size()) {}

void ThreadGroup::wake() {
  // Between a waiter's check and its sleep the mutex is held, so none is missed.
  { const std::lock_guard lock(mutex_); }
  woken_.notify_all();
}

bool ThreadGroup::arrive(std::int64_t rank, std::uint64_t generation) {
  slot(rank).arrivals.fetch_add(1, std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < size()) return false;
  {
    const std::lock_guard lock(mutex_);
    if (broken_) run_->throw_reason();
    arrived_.store(0, std::memory_order_relaxed);
    generation_.store(generation + 1, std::memory_order_release);
  }
  woken_.notify_all();
  return true;
}

bool ThreadGroup::spin_until_past(std::uint64_t generation) const {
  for (int i = 0; i < kSpins; ++i) {
    if (generation_.load(std::memory_order_acquire) != generation) return true;
    std::this_thread::yield();
  }
  return false;
}

void ThreadGroup::begin(std::int64_t rank) {
  const ThreadOptions& options = run_->options();
  if (options.delay) options.delay(member(rank));
  if (run_->stopped()) run_->throw_reason();
  const std::uint64_t generation = generation_.load(std::memory_order_relaxed);
  if (!arrive(rank, generation) && !spin_until_past(generation)) wait_or_stop(rank, generation);
  require_alike(rank);
}

void ThreadGroup::wait_or_stop(std::int64_t rank, std::uint64_t generation) {
  const auto past = [&] { return generation_.load(std::memory_order_acquire) != generation; };
  auto deadline = std::chrono::steady_clock::now() + run_->options().timeout;
  std::unique_lock lock(mutex_);
  while (true) {
    const bool woken = woken_.wait_until(lock, deadline, [&] { return past() || run_->stopped(); });
    if (past()) return;
    if (woken) {
      broken_ = true;
      run_->throw_reason();
    }
    lock.unlock();
    if (const auto message = who_is_missing(rank)) run_->stop(member(rank), *message);
    deadline = std::chrono::steady_clock::now() + run_->options().timeout;
    lock.lock();
  }
}

std::optional<std::string> ThreadGroup::who_is_missing(std::int64_t rank) const {
  const Slot& mine = slots_[static_cast<std::size_t>(rank)];
  const std::uint64_t arrivals = mine.arrivals.load(std::memory_order_relaxed);
  std::vector<std::int64_t> missing, waiting;
  std::string activities;
  for (std::size_t r = 0; r < slots_.size(); ++r) {
    const bool here = slots_[r].arrivals.load(std::memory_order_relaxed) >= arrivals;
    (here ? waiting : missing).push_back(members_[r]);
    if (!here) activities += "; " + run_->activity_text(members_[r]);
  }
  if (missing.empty()) return std::nullopt;
  return fmt::format("{} did not come within {} s to {}, where {} waited{}", ranks_text(missing),
                     std::chrono::duration<double>(run_->options().timeout).count(), text_of(mine.call),
                     ranks_text(waiting), activities);
}

void ThreadGroup::require_alike(std::int64_t rank) {
  const Call& first = slots_[0].call;
  const auto other =
      std::find_if(slots_.begin(), slots_.end(), [&](const Slot& s) { return s.call != first; });
  if (other == slots_.end()) return;
  stop_out_of_step(rank, 0, first, other - slots_.begin(), other->call);
}

void ThreadGroup::stop_out_of_step(std::int64_t rank, std::int64_t one, const Call& its, std::int64_t other,
                                   const Call& theirs) {
  const std::int64_t first = member(one);
  const std::int64_t second = member(other);
  run_->stop(member(rank), fmt::format("ranks are out of step: rank {} is in {}; rank {} is in {} ({}; {})",
                                       first, text_of(its), second, text_of(theirs),
                                       run_->activity_text(first), run_->activity_text(second)));
  run_->throw_reason();
}

void ThreadGroup::finish(std::int64_t rank) {
  if (run_->options().delay) run_->options().delay(member(rank));
  const std::uint64_t generation = generation_.load(std::memory_order_relaxed);
  if (arrive(rank, generation) || spin_until_past(generation)) return;
  std::unique_lock lock(mutex_);
  woken_.wait(lock, [&] { return generation_.load(std::memory_order_acquire) != generation; });
}

template <class Ready>
void ThreadGroup::await(std::unique_lock<std::mutex>& lock, std::int64_t rank, std::int64_t other,
                        const Call& call, const Ready& ready) {
  const auto deadline = std::chrono::steady_clock::now() + run_->options().timeout;
  const bool woken = woken_.wait_until(lock, deadline, [&] { return ready() || run_->stopped(); });
  if (woken && ready()) return;
  if (woken) run_->throw_reason();
  lock.unlock();  // whoever is stopped takes it
  const std::int64_t missing = member(other);
  run_->stop(member(rank),
             fmt::format("{} did not come within {} s to {}, where rank {} waited; {}", ranks_text({missing}),
                         std::chrono::duration<double>(run_->options().timeout).count(), text_of(call),
                         member(rank), run_->activity_text(missing)));
  run_->throw_reason();
}

void ThreadGroup::give(std::int64_t rank, std::int64_t to, const Call& call, const std::byte* data) {
  if (run_->options().delay) run_->options().delay(member(rank));
  std::unique_lock lock(mutex_);
  if (run_->stopped()) run_->throw_reason();
  Offer& offer = offers_[static_cast<std::size_t>(rank)];
  offer = {Offer::State::offered, to, call, data};
  woken_.notify_all();
  try {
    await(lock, rank, to, call, [&] { return offer.state != Offer::State::offered; });
  } catch (...) {
    // The other rank may have begun to copy in the meantime.
    if (!lock.owns_lock()) lock.lock();
    if (offer.state == Offer::State::offered) offer.state = Offer::State::none;
    woken_.wait(lock, [&] { return offer.state != Offer::State::copying; });
    throw;
  }
  // It only copies, and leaving before would pull the memory from under it.
  woken_.wait(lock, [&] { return offer.state == Offer::State::taken; });
  offer.state = Offer::State::none;
}

Bytes ThreadGroup::take(std::int64_t rank, std::int64_t from, const Call& call, std::byte* data) {
  if (run_->options().delay) run_->options().delay(member(rank));
  std::unique_lock lock(mutex_);
  Offer& offer = offers_[static_cast<std::size_t>(from)];
  await(lock, rank, from, call, [&] { return offer.state == Offer::State::offered && offer.to == rank; });
  if (offer.call != call) {
    const Call theirs = offer.call;
    lock.unlock();
    stop_out_of_step(rank, from, theirs, rank, call);
  }
  offer.state = Offer::State::copying;
  lock.unlock();
  const Bytes bytes = call.elements * program::bytes_of(call.type);
  if (bytes > 0) std::memcpy(data, offer.data, static_cast<std::size_t>(bytes));
  lock.lock();
  offer.state = Offer::State::taken;
  woken_.notify_all();
  return bytes;
}

}  // namespace zeroplan::executor::threads
