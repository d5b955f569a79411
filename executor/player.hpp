#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
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
//
// Where a device can record kernels (Device::can_record), those that follow each other on the compute stream are recorded
// when the step is played for the third time, and replayed from then on. The first time loads what the device loads late, the
// second tells how the time of what is replayed together is divided.
class Player {
 public:
  Player(Device& device, Arena& arena);

  // Before a step is played for the first time: makes room for its events and times.
  void prepare(const LoweredStep& step);
  // Requires prepare(). `batches` may be nullptr where nothing is loaded. Returns when everything is done; throws what a
  // command threw, also on another stream, when nothing runs any more.
  void play(const LoweredStep& step, BatchSource* batches);

  // Of the step that was played last: seconds of each play, in the order of for_each_play(), as the device took them. Of what
  // is replayed together the device times the whole, which is divided as when each was timed.
  std::span<const float> seconds() const { return seconds_; }
  // And how long kernels waited in it for collectives beside them.
  double waited_for_traffic_seconds() const { return waited_for_traffic_seconds_; }

  // Where the program is, or where it failed first. Any thread may ask, at any time.
  program::Position position() const;
  // What each stream has finished last; streams without a command are left out.
  std::vector<std::pair<program::Stream, program::Position>> finished() const;

 private:
  // Kernels [begin, end) of a step's commands, which are recorded together.
  struct Section {
    std::size_t begin = 0, end = 0;
    std::optional<Device::Recording> recording;
  };
  // A section that was replayed: the first of its plays, and what the device took for all.
  struct Replay {
    std::size_t play = 0, plays = 0;
    float seconds = 0;
  };

  void find_sections(const LoweredStep& step);
  void play_all(const LoweredStep& step, BatchSource* batches);
  void play(const LoweredStep& step, const Command& command, BatchSource* batches, float* seconds);
  void replay(const LoweredStep& step, Section& section, std::size_t play);
  void divide_replays();
  void wait_for(const LoweredStep& step, const Command& command);
  void signal(const Command& command);
  void meet();
  void load(const std::array<Tensor, 2>& batch, program::Stream stream, BatchSource& batches);

  Device& device_;
  Arena& arena_;
  std::array<Device::Event, program::kStreams> meetings_{};
  std::vector<Device::Event> events_;
  std::vector<float> seconds_;
  std::vector<float> timed_seconds_;  // of the second time, when each was timed
  std::vector<Section> sections_;     // rising
  std::vector<Replay> replays_;       // of this time; not moved while the device writes there
  std::uint64_t times_played_ = 0;
  double waited_for_traffic_seconds_ = 0;
  std::array<std::vector<std::int32_t>, 2> batch_;  // of the host, before it is uploaded
  std::atomic<std::uint64_t> position_ = 0;         // a packed position, as are those of the progress
  Progress progress_;
};

}  // namespace zeroplan::executor
