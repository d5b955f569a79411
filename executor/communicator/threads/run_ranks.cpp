#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "executor/communicator/failure.hpp"
#include "executor/communicator/threads/group.hpp"
#include "executor/communicator/threads/thread_communicator.hpp"
#include "executor/error.hpp"

namespace zeroplan::executor {

namespace {

std::string message_of(const std::exception_ptr& exception) { return failure_of(exception).text; }

// A ConfigurationError is the user's mistake, not the rank's.
[[noreturn]] void rethrow_with_rank(std::int64_t rank, const std::exception_ptr& exception) {
  Failure failure = failure_of(exception);
  if (failure.kind == Failure::Kind::configuration) std::rethrow_exception(exception);
  failure.text = fmt::format("rank {}: {}", rank, failure.text);
  throw_failure(failure);
}

// How the threads of a run ended.
class Outcome {
 public:
  explicit Outcome(std::int64_t ranks) { exceptions_.resize(static_cast<std::size_t>(ranks)); }

  void ended(std::int64_t rank, std::exception_ptr exception) {
    const std::lock_guard lock(mutex_);
    exceptions_[static_cast<std::size_t>(rank)] = std::move(exception);
    ended_.push_back(rank);
    changed_.notify_all();
  }

  void wait(const threads::SharedRun& run) {
    const auto all = [&] { return ended_.size() == exceptions_.size(); };
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return all() || run.stopped(); });
    if (changed_.wait_for(lock, run.options().timeout, all)) return;
    const std::string report = stall_report(run);
    lock.unlock();
    if (run.options().stalled) {
      run.options().stalled(report);
      return;
    }
    fmt::print(stderr, "{}\n", report);
    std::terminate();
  }

  // The rank that stopped the run failed first: the others' exceptions follow from it.
  void rethrow(const threads::SharedRun& run) const {
    if (!run.stopped()) return;
    const std::exception_ptr& first = exceptions_[static_cast<std::size_t>(run.origin())];
    if (first) rethrow_with_rank(run.origin(), first);
    run.throw_reason();
  }

 private:
  std::string stall_report(const threads::SharedRun& run) const {
    std::string report = "a rank failed";
    for (const std::int64_t rank : ended_) {
      const std::exception_ptr& exception = exceptions_[static_cast<std::size_t>(rank)];
      if (rank == run.origin() && exception) report = fmt::format("rank {}: {}", rank, message_of(exception));
    }
    for (std::size_t rank = 0; rank < exceptions_.size(); ++rank) {
      const auto r = static_cast<std::int64_t>(rank);
      if (std::find(ended_.begin(), ended_.end(), r) == ended_.end()) {
        report += fmt::format("; rank {} does not end: {}", r, run.activity_text(r));
      }
    }
    return report;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::exception_ptr> exceptions_;  // by rank
  std::vector<std::int64_t> ended_;
};

}  // namespace

void run_ranks(std::int64_t ranks, const ThreadOptions& options,
               const std::function<void(Communicator&)>& rank_main) {
  if (ranks < 1) throw std::logic_error(fmt::format("a run of {} ranks", ranks));
  const auto run = std::make_shared<threads::SharedRun>(ranks, options);
  const auto communicators = threads::communicators_of(run);
  Outcome outcome(ranks);
  {
    std::vector<std::jthread> running;
    std::string refusal;
    try {
      for (const auto& communicator : communicators) {
        running.emplace_back([&, rank = communicator.get()] {
          std::exception_ptr exception;
          try {
            rank_main(*rank);
          } catch (...) {
            exception = std::current_exception();
            rank->abort(message_of(exception));
          }
          outcome.ended(rank->rank(), exception);
        });
      }
    } catch (const std::system_error& error) {
      communicators[0]->abort("the system has no more threads");
      refusal = fmt::format("{} ranks as threads of one process: the system gives no more after {} ({})",
                            ranks, running.size(), error.what());
    } catch (const std::bad_alloc&) {
      communicators[0]->abort("there is no memory for more threads");
      refusal = fmt::format("{} ranks as threads of one process: there is no memory for more after {}", ranks,
                            running.size());
    }
    if (!refusal.empty()) {
      running.clear();  // they were stopped
      throw NotPossible(refusal);
    }
    outcome.wait(*run);
  }
  outcome.rethrow(*run);
}

}  // namespace zeroplan::executor
