#include "executor/device/cpu/workers.hpp"

namespace zeroplan::executor::cpu {

void* Scratch::take(Bytes bytes) {
  if (taken_ == blocks_.size()) blocks_.emplace_back();
  Block& block = blocks_[taken_++];
  if (block.bytes < bytes) {
    block.memory.reset();
    block.bytes = 0;
    const Bytes rounded = round_up(bytes, 4 * kKiB);
    block.memory.reset(::operator new (static_cast<std::size_t>(rounded), std::align_val_t{64}));
    block.bytes = rounded;
  }
  return block.memory.get();
}

Bytes Scratch::bytes() const {
  Bytes total = 0;
  for (const Block& block : blocks_) total += block.bytes;
  return total;
}

Workers::Workers(int threads) : scratch_(static_cast<std::size_t>(threads)) {
  threads_.reserve(scratch_.size() - 1);
  for (std::size_t worker = 1; worker < scratch_.size(); ++worker) {
    threads_.emplace_back([this, worker] { serve(worker); });
  }
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Bytes Workers::scratch_bytes() const {
  Bytes total = shared_.bytes();
  for (const Scratch& scratch : scratch_) total += scratch.bytes();
  return total;
}

Flops Workers::product_flops() const {
  Flops total = 0;
  for (const Scratch& scratch : scratch_) total += scratch.product_flops();
  return total;
}

void Workers::drain(std::unique_lock<std::mutex>& lock, Scratch& scratch) {
  while (work_.next < work_.count) {
    const std::int64_t index = work_.next++;
    const Task& task = *work_.task;
    lock.unlock();
    std::exception_ptr failure;
    try {
      const Scratch::Frame frame(scratch);
      task(index, scratch);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure != nullptr) {
      if (work_.failure == nullptr) work_.failure = failure;
      work_.next = work_.count;
    }
  }
}

void Workers::serve(std::size_t worker) {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || work_.next < work_.count; });
    if (stop_) return;
    ++work_.running;
    drain(lock, scratch_[worker]);
    if (--work_.running == 0) done_.notify_one();
  }
}

void Workers::run(std::int64_t count, const Task& task) {
  if (count <= 0) return;
  if (count == 1 || threads_.empty()) {
    for (std::int64_t index = 0; index < count; ++index) {
      const Scratch::Frame frame(scratch_.front());
      task(index, scratch_.front());
    }
    return;
  }
  std::unique_lock lock(mutex_);
  work_ = Work{&task, count, 0, 0, nullptr};
  wake_.notify_all();
  drain(lock, scratch_.front());
  // A thread that has not woken by now finds nothing left and is not waited for.
  done_.wait(lock, [this] { return work_.running == 0; });
  if (work_.failure != nullptr) std::rethrow_exception(work_.failure);
}

}  // namespace zeroplan::executor::cpu
