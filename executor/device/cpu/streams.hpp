#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "executor/device/device.hpp"

namespace zeroplan::executor::cpu {

// The streams of a processor. Copies and collectives have threads of their own, so that they run beside the kernels;
// each starts with its first work. All else runs on the thread that issues it, which is one.
//
// Work that throws ends its device: what is issued or waiting is passed over, and the first exception comes out of the
// next wait() on the issuing thread and of synchronize().
class Streams {
 public:
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
  void run(program::Stream stream, const HostWork& work, const Watch& watch);
  Device::Event make_event();
  void record(Device::Event event, program::Stream stream);
  void wait(program::Stream stream, Device::Event event, double* held);
  void synchronize();
  // As synchronize(), whatever happened.
  void drain() noexcept;

 private:
  // So many works of a stream are done; 0 is past, as on streams without a thread.
  struct Point {
    std::size_t stream = 0;
    std::uint64_t works = 0;
  };
  struct Work {
    HostWork work;  // without a function: wait for the point
    Watch watch;
    Point point;
  };
  // So many works may wait for a lane's thread; then whoever issues waits for it. It cannot be for ever: works wait only
  // for what was issued before them.
  static constexpr std::size_t kMostWaiting = 1024;
  struct Lane {
    std::uint64_t issued = 0;             // of the issuing thread
    std::atomic<std::uint64_t> done = 0;  // rises by one with each work, in order
    std::mutex mutex;                     // guards what follows
    std::condition_variable wake;         // works came, or the end
    std::condition_variable room;         // works were taken
    std::vector<Work> works;
    bool stops = false;
    std::thread thread;
  };

  Lane& lane(program::Stream stream) { return lanes_[static_cast<std::size_t>(stream)]; }
  void issue(Lane& lane, const Work& work);
  void serve(Lane& lane);
  void await(const Point& point);
  void note_failure() noexcept;
  void throw_failure();

  std::array<Lane, program::kStreams> lanes_;
  std::vector<Point> events_;  // of the issuing thread
  std::atomic<bool> failed_ = false;
  std::mutex failure_mutex_;  // guards failure_
  std::exception_ptr failure_;
};

}  // namespace zeroplan::executor::cpu
