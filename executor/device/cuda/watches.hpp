#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "executor/device/cuda/handles.hpp"
#include "executor/device/device.hpp"

namespace zeroplan::executor::cuda {

// What the issuer of work wants to know of it, by events of CUDA: one behind each piece of work, and one before it
// where something else may have held the stream. The issuing thread looks at them while it issues and while it waits, so
// progress costs the device nothing.
class Watches {
 public:
  void begin(program::Stream stream, cudaStream_t on, const Watch& watch);
  void end(program::Stream stream, cudaStream_t on, const Watch& watch);
  // Around a wait whose time somebody wants.
  void begin_wait(program::Stream stream, cudaStream_t on, double* held);
  void end_wait(program::Stream stream, cudaStream_t on, double* held);

  // Notes what is done. Does nothing after a sticky error, which leaves progress as it was seen last.
  void look();
  // All is done: what is left is noted, and events are used anew.
  void settle();
  // The device has failed: the oldest work that was not seen to end is where, as far as anybody knows.
  void fail();
  // After a failure.
  void forget();

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Work {
    Watch watch;
    std::size_t begin = kNone, end = kNone;  // events
    std::uint64_t order = 0;
  };
  struct Lane {
    std::vector<Work> works;
    std::size_t seen = 0;       // of works: done and noted
    std::size_t last = kNone;   // the event behind the last work, where nothing was issued since
    std::size_t begun = kNone;  // of the work or wait that is being issued
  };
  struct Wait {
    double* held = nullptr;
    std::size_t begin = kNone, end = kNone;
  };

  Lane& lane(program::Stream stream) { return lanes_[static_cast<std::size_t>(stream)]; }
  std::size_t record(cudaStream_t on);
  float seconds_between(std::size_t begin, std::size_t end) const;
  void note(std::size_t stream, const Work& work) const;

  std::array<Lane, program::kStreams> lanes_;
  std::vector<Wait> waits_;
  std::vector<EventHandle> events_;
  std::size_t used_ = 0;
  std::uint64_t next_order_ = 0;
};

}  // namespace zeroplan::executor::cuda
