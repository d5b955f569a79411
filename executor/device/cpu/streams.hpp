#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "executor/device/device.hpp"

namespace zeroplan::executor::cpu {

// The streams of a processor. Copies and collectives have threads of their own, so that they run beside the kernels;
// each starts with its first work. All else runs on the thread that issues it, which is one.
//
// Work that throws ends its device: what is issued or waiting is passed over, and the first exception comes out of the
// next wait() on the issuing thread and of synchronize().
class Streams {
 public:
  using Work = std::function<void()>;

  Streams() = default;
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  static constexpr bool has_thread(program::Stream stream) {
    using program::Stream;
    return stream == Stream::communication || stream == Stream::tensor || stream == Stream::to_host ||
           stream == Stream::to_device;
  }

  // In the stream's order; at once where the stream has no thread, or this is its thread.
  void run(program::Stream stream, Work work);
  // Past on streams without a thread.
  Device::Event record(program::Stream stream) const;
  void wait(program::Stream stream, Device::Event event);
  void synchronize();
  // As synchronize(), whatever happened.
  void drain() noexcept;

 private:
  struct Lane {
    std::uint64_t issued = 0;             // of the issuing thread
    std::atomic<std::uint64_t> done = 0;  // rises by one with each work, in order
    std::mutex mutex;                     // guards what follows
    std::condition_variable wake;
    std::deque<Work> works;
    bool stops = false;
    std::thread thread;
  };

  Lane& lane(program::Stream stream) { return lanes_[static_cast<std::size_t>(stream)]; }
  void serve(Lane& lane);
  void await(Device::Event event);
  void note_failure() noexcept;
  void throw_failure();

  std::array<Lane, program::kStreams> lanes_;
  std::atomic<bool> failed_ = false;
  std::mutex failure_mutex_;  // guards failure_
  std::exception_ptr failure_;
};

}  // namespace zeroplan::executor::cpu
