#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "executor/lowered_step.hpp"

namespace zeroplan::executor {

// Where a rank's micro-batches come from. Called in order; ranks of one tensor-parallel group must get the
// same.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual void next(std::span<std::int32_t> tokens, std::span<std::int32_t> targets) = 0;
};

// Issues lowered steps to a device. What it does for each command is fixed: it waits, issues and records, and neither
// looks anything up nor allocates.
class Player {
 public:
  Player(Device& device, Arena& arena);

  // Before a step is played for the first time: makes room for its events and times.
  void prepare(const LoweredStep& step);
  // Requires prepare(). `batches` may be nullptr where nothing is loaded. Returns when everything is done; throws what a
  // command threw, also on another stream, when nothing runs any more.
  void play(const LoweredStep& step, BatchSource* batches);

  // Of the step that was played last: seconds of each play, in the order of for_each_play(), as the device took them.
  std::span<const float> seconds() const { return seconds_; }
  // And how long kernels waited in it for collectives beside them.
  double waited_for_traffic_seconds() const { return waited_for_traffic_seconds_; }

  // Where the program is, or where it failed first. Any thread may ask, at any time.
  program::Position position() const;
  // What each stream has finished last; streams without a command are left out.
  std::vector<std::pair<program::Stream, program::Position>> finished() const;

 private:
  void play(const LoweredStep& step, const Command& command, BatchSource* batches, float* seconds);
  void meet();
  void load(const std::array<Tensor, 2>& batch, program::Stream stream, BatchSource& batches);

  Device& device_;
  Arena& arena_;
  std::array<Device::Event, program::kStreams> meetings_{};
  std::vector<Device::Event> events_;
  std::vector<float> seconds_;
  double waited_for_traffic_seconds_ = 0;
  std::array<std::vector<std::int32_t>, 2> batch_;  // of the host, before it is uploaded
  std::atomic<std::uint64_t> position_ = 0;         // a packed position, as are those of the progress
  Progress progress_;
};

}  // namespace zeroplan::executor
