#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/predict/repetition.hpp"
#include "planner/predict/schedule.hpp"
#include "planner/predict/time.hpp"

namespace zeroplan::predict {

// A step is read several times at once: as it is, then with these parts taking no time, one more each time. What a
// reading is shorter by than the one before is the part's exposed time.
inline constexpr std::array<ExposedPart, 4> kLeftOut{ExposedPart::launch_gaps, ExposedPart::host_copies,
                                                     ExposedPart::data_parallel,
                                                     ExposedPart::tensor_parallel};
inline constexpr std::size_t kReadings = kLeftOut.size() + 1;
using Readings = std::array<double, kReadings>;  // seconds, by reading

// How many of the readings have the part.
constexpr std::size_t readings_with(ExposedPart part) {
  for (std::size_t i = 0; i < kLeftOut.size(); ++i) {
    if (kLeftOut[i] == part) return i + 1;
  }
  return kReadings;
}

constexpr Readings filled(double seconds) {
  Readings readings{};
  for (double& reading : readings) reading = seconds;
  return readings;
}

// What a section of a program does to the clocks of its rows (schedule.hpp) in (max, +) algebra: rows wait for one
// another and go on. It is kept as these moves, and what the host and one stream do in a row is one move: sections one
// after the other are a concatenation, repeats a power, and applying them to clocks (Walk) is less work than one
// product of their matrices would be. All that are appended to one another are of one program.
class Delays {
 public:
  // Room for what a step mostly comes to.
  void reserve() {
    moves_.reserve(96);
    runs_.reserve(64);
  }

  // Clocks as Schedule wants them.
  void wait(std::size_t row, std::size_t other);
  void set(std::size_t row, std::size_t other);
  void spend(std::size_t row, ExposedPart part, double seconds);
  void launch(std::size_t row, const Launch& launch);
  void wait_for_all();  // never inside a repeat

  // What follows, up to its end_repeat(), happens `count` times.
  void repeat(std::int64_t count);
  void end_repeat();

  // This, then `later`.
  void append(const Delays& later);
  // `count` times in a row.
  Delays power(std::int64_t count) const;

  // Of the clocks that it is about.
  std::size_t rows() const { return rows_; }

 private:
  friend class Walk;

  // Where a row does not wait. Finite, so that differences are numbers.
  static constexpr double kNever = -1e300;

  enum class Kind : std::uint8_t { run, wait, set, wait_for_all, repeat, end_repeat };
  struct Move {
    Kind kind = Kind::run;
    std::uint16_t row = 0, other = 0;
    std::uint32_t at = 0;    // run: into runs_; repeat: its end; end_repeat: its begin
    std::int64_t count = 1;  // of a repeat
    std::uint64_t rows =
        0;  // of a repeat: bits of those that it moves; those behind the last bit have that one
  };
  // The host goes on by `host`; the row by `row`, and is ready no sooner than `behind_host` after the host was at the
  // start. Of the host alone the row is the host.
  struct Run {
    Readings host{}, row{}, behind_host = filled(kNever);
  };

  Run& run_of(std::size_t row);
  Move& move(Kind kind, std::size_t row = 0);

  std::size_t rows_ = 1;
  std::vector<Move> moves_;
  std::vector<Run> runs_;
};

inline Delays::Move& Delays::move(Kind kind, std::size_t row) {
  rows_ = std::max(rows_, row + 1);
  Move& move = moves_.emplace_back();
  move.kind = kind;
  move.row = static_cast<std::uint16_t>(row);
  return move;
}

// The last move where that is one of the host and the row, or can become so.
inline Delays::Run& Delays::run_of(std::size_t row) {
  if (!moves_.empty() && moves_.back().kind == Kind::run) {
    Move& last = moves_.back();
    if (last.row == Rows::kHost && row != Rows::kHost) {
      last.row = static_cast<std::uint16_t>(row);
      rows_ = std::max(rows_, row + 1);
    }
    if (last.row == row || row == Rows::kHost) return runs_[last.at];
  }
  move(Kind::run, row).at = static_cast<std::uint32_t>(runs_.size());
  return runs_.emplace_back();
}

inline void Delays::wait(std::size_t row, std::size_t other) {
  move(Kind::wait, row).other = static_cast<std::uint16_t>(other);
}

inline void Delays::set(std::size_t row, std::size_t other) {
  move(Kind::set, row).other = static_cast<std::uint16_t>(other);
}

inline void Delays::spend(std::size_t row, ExposedPart part, double seconds) {
  Run& run = run_of(row);
  const std::size_t readings = readings_with(part);
  if (row == Rows::kHost) {
    for (std::size_t r = 0; r < readings; ++r) run.host[r] += seconds;
    return;
  }
  for (std::size_t r = 0; r < readings; ++r) run.row[r] += seconds;
  for (std::size_t r = 0; r < readings; ++r) run.behind_host[r] += seconds;
}

inline void Delays::launch(std::size_t row, const Launch& launch) {
  static_assert(kLeftOut.front() == ExposedPart::launch_gaps);
  Run& run = run_of(row);
  run.host.front() += launch.issue;
  for (std::size_t r = 0; r < kReadings; ++r) {
    run.behind_host[r] = run.behind_host[r] > run.host[r] ? run.behind_host[r] : run.host[r];
  }
  run.row.front() += launch.gap;
  run.behind_host.front() += launch.gap;
  const std::size_t readings = readings_with(launch.part);
  Readings seconds{};
  for (std::size_t r = 0; r < kReadings; ++r) seconds[r] = r < readings ? launch.seconds : 0;
  for (std::size_t r = 0; r < kReadings; ++r) run.row[r] += seconds[r];
  for (std::size_t r = 0; r < kReadings; ++r) run.behind_host[r] += seconds[r];
}

// Seconds of a step by how often a body is repeated in it.
struct SecondsByCount {
  std::vector<Readings> first;  // without it, once, twice ...
  Readings each{};              // beyond those, of each further time
  bool goes_on = false;         // so; else only the first are known

  bool knows(std::int64_t count) const { return goes_on || count < static_cast<std::int64_t>(first.size()); }
  Readings at(std::int64_t count) const;
};

// Seconds of the instructions of each part, one after the other.
struct SecondsAlone {
  using OfParts = std::array<double, kExposedParts>;

  OfParts busy{};
  OfParts waiting{};  // for other ranks, not in busy

  // A link that is not described takes no number of seconds, which no maximum passes on but every sum does.
  bool is_known() const;
  // This, and `later` `count` times.
  void append(const SecondsAlone& later, std::int64_t count = 1);
};

// What a section costs in time.
struct SectionTime {
  Delays delays;
  SecondsAlone alone;

  // This, then `later` `count` times.
  void append(const SectionTime& later, std::int64_t count = 1);
};

// The times of a step with these instructions that takes so many seconds.
StepTime step_time_of(const SecondsAlone& alone, const Readings& seconds);

// Clocks that walk through delays. Mostly the iterations of a repeat soon go on by the same time each: from there on
// they are moved at once.
class Walk {
 public:
  // From clocks that are all 0. What earlier walks left room for is used again.
  void run(const Delays& delays);
  Readings latest() const;
  // Seconds of `before`, `body` as often as asked, and `after`: up to where they go on evenly with that.
  SecondsByCount by_count(const Delays& before, const Delays& body, const Delays& after);

 private:
  // Both sides of a maximum that was taken inside a repeat.
  struct Choice {
    Readings row, other;
  };
  using Clocks = std::vector<Readings>;

  void start(std::size_t rows);
  void go_on(const Delays& delays);
  void run(const Delays& delays, std::size_t begin, std::size_t end);
  void repeat(const Delays& delays, std::size_t index);
  template <class Iterate>
  std::int64_t until_steady(std::int64_t count, std::uint64_t moved, Iterate&& iterate);
  void wait_for_all();
  void choose(Readings& to, const Readings& one, const Readings& other);
  bool is_steady(std::size_t before, std::size_t middle, double most) const;
  double tolerance() const;

  // Of one repeat: the rows that it moves, and theirs.
  struct Repeat {
    std::vector<std::size_t> rows;
    Clocks start, steps, last_steps;
  };

  Clocks clocks_;
  std::size_t recording_ = 0;  // repeats around
  std::array<Repeat, kDeepestRepeat> repeats_;
  std::vector<Choice> choices_;
  // Of the repeats inside an iteration: after how many iterations, and by how much rows then go on.
  Clocks jumps_;
};

}  // namespace zeroplan::predict
