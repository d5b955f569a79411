#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "planner/units.hpp"

namespace zeroplan::executor::cpu {

// A thread's memory for one task after another, and its count of what they multiplied. Every take() of a
// frame is a block of its own, which is kept and only ever replaced by a larger one, so pointers stay good
// until their frame ends. Contents are undefined.
class Scratch {
 public:
  // Ends what was taken since it began.
  class Frame {
   public:
    explicit Frame(Scratch& scratch) : scratch_(scratch), start_(scratch.taken_) {}
    ~Frame() { scratch_.taken_ = start_; }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    Scratch& scratch_;
    std::size_t start_;
  };

  float* floats(Elements count) {
    return static_cast<float*>(take(count * static_cast<Bytes>(sizeof(float))));
  }
  double* doubles(Elements count) {
    return static_cast<double*>(take(count * static_cast<Bytes>(sizeof(double))));
  }
  std::int64_t* integers(Elements count) {
    return static_cast<std::int64_t*>(take(count * static_cast<Bytes>(sizeof(std::int64_t))));
  }
  Bytes bytes() const;

  // Matrix products of the thread's tasks; any thread may read.
  void count_product_flops(Flops flops) {
    product_flops_.store(product_flops_.load(std::memory_order_relaxed) + flops, std::memory_order_relaxed);
  }
  Flops product_flops() const { return product_flops_.load(std::memory_order_relaxed); }

 private:
  struct Free {
    void operator()(void* block) const { ::operator delete (block, std::align_val_t{64}); }
  };
  struct Block {
    std::unique_ptr<void, Free> memory;
    Bytes bytes = 0;
  };

  void* take(Bytes bytes);

  std::vector<Block> blocks_;
  std::size_t taken_ = 0;
  std::atomic<Flops> product_flops_ = 0;
};

// The threads of one device and their scratch. The calling thread is one of them.
class Workers {
 public:
  // A function (std::int64_t index, Scratch& scratch) that lasts as long as the call that it is given to: it is neither
  // copied nor allocated.
  class Task {
   public:
    template <class Function>
    Task(const Function& function)  // NOLINT(google-explicit-constructor): what a caller writes is a function
        : function_(&function), call_([](const void* own, std::int64_t index, Scratch& scratch) {
            (*static_cast<const Function*>(own))(index, scratch);
          }) {}
    void operator()(std::int64_t index, Scratch& scratch) const { call_(function_, index, scratch); }

   private:
    const void* function_;
    void (*call_)(const void* own, std::int64_t index, Scratch& scratch);
  };

  explicit Workers(int threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Calls task(0) ... task(count - 1), each once, in any order and on any thread; returns when all are done
  // and throws what the first failed one threw. A task must not call it.
  void run(std::int64_t count, const Task& task);

  // Of the calling thread, for what tasks share. Not of any task.
  Scratch& shared() { return shared_; }
  Bytes scratch_bytes() const;
  Flops product_flops() const;

 private:
  struct Work {
    const Task* task = nullptr;
    std::int64_t count = 0;
    std::int64_t next = 0;
    int running = 0;  // threads besides the caller
    std::exception_ptr failure;
  };

  void serve(std::size_t worker);
  // Holds `lock` but while a task runs.
  void drain(std::unique_lock<std::mutex>& lock, Scratch& scratch);

  Scratch shared_;
  std::vector<Scratch> scratch_;  // of each thread, the caller's first
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Work work_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

// The thread that calls it, and no other.
struct OneWorker : Workers {
  OneWorker() : Workers(1) {}
};

// Sizes of tasks and of the blocks inside them. They depend on shapes alone.
inline constexpr Elements kTaskElements = Elements{1} << 16;
inline constexpr Elements kBlockElements = 4096;  // as fp32 they stay in the nearest cache

// body(begin, count, scratch) over blocks of [0, elements).
template <class Body>
void over_blocks(Workers& workers, Elements elements, const Body& body) {
  workers.run(div_ceil(elements, kTaskElements), [&](std::int64_t task, Scratch& scratch) {
    const Elements end = std::min(elements, (task + 1) * kTaskElements);
    for (Elements begin = task * kTaskElements; begin < end; begin += kBlockElements) {
      const Scratch::Frame frame(scratch);
      body(begin, std::min(kBlockElements, end - begin), scratch);
    }
  });
}

// body(first, last, scratch) over ranges of rows that have about as many elements as a task should.
template <class Body>
void over_rows(Workers& workers, std::int64_t rows, Elements width, const Body& body) {
  const std::int64_t step = std::max<std::int64_t>(1, kTaskElements / std::max<Elements>(1, width));
  workers.run(div_ceil(rows, step), [&](std::int64_t task, Scratch& scratch) {
    const Scratch::Frame frame(scratch);
    body(task * step, std::min(rows, (task + 1) * step), scratch);
  });
}

}  // namespace zeroplan::executor::cpu
