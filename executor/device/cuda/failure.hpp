#pragma once

#include <atomic>
#include <exception>
#include <mutex>

namespace zeroplan::executor::cuda {

// What work of a device threw first, on whatever thread.
class Failure {
 public:
  void note(std::exception_ptr thrown) {
    const std::lock_guard lock(mutex_);
    if (!first_) first_ = std::move(thrown);
    any_.store(true, std::memory_order_release);
  }
  bool any() const { return any_.load(std::memory_order_acquire); }
  void rethrow() {
    if (!any()) return;
    const std::lock_guard lock(mutex_);
    std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;  // guards first_
  std::exception_ptr first_;
  std::atomic<bool> any_ = false;
};

}  // namespace zeroplan::executor::cuda
