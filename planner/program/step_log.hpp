#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/units.hpp"

namespace zeroplan::program {

// One optimizer step, the same on every rank; time by the clock of rank 0.
struct StepMeasurement {
  std::int64_t step = 0;  // from 1, skipped ones included
  bool warm_up = false;
  double loss = 0;           // mean over tokens
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;
  double loss_scale = 1;
  bool skipped = false;  // overflow: nothing was updated
  double seconds = 0;
  Bytes peak_bytes = 0;  // most that rank 0 has held of its device so far
};

// The steps of a run of any length in a bounded place: all of them while they are few, then every second one,
// every fourth ..., and the last one always. What it counts is of all of them.
class StepLog {
 public:
  void push_back(const StepMeasurement& step);

  // Those that are kept, in order.
  const std::vector<StepMeasurement>& kept() const { return kept_; }
  auto begin() const { return kept_.begin(); }
  auto end() const { return kept_.end(); }
  std::size_t size() const { return kept_.size(); }
  bool empty() const { return kept_.empty(); }
  const StepMeasurement& operator[](std::size_t i) const { return kept_[i]; }
  const StepMeasurement& back() const { return kept_.back(); }
  std::int64_t kept_every() const { return kept_every_; }

  std::int64_t taken() const { return taken_; }  // warm-up included
  // The first whose loss is no number above 0, the first that updated by a gradient that is none, and the first that was skipped where the loss scale has nothing left to
  // halve: what has none is at 1.
  const std::optional<StepMeasurement>& first_without_loss() const { return first_without_loss_; }
  const std::optional<StepMeasurement>& first_without_gradient() const { return first_without_gradient_; }
  const std::optional<StepMeasurement>& first_overflow() const { return first_overflow_; }
  // Of the steps that were no warm-up:
  std::int64_t measured() const { return measured_; }
  std::int64_t skipped() const { return skipped_; }
  double measured_seconds() const { return measured_seconds_; }
  double fastest_seconds() const { return fastest_seconds_; }
  double slowest_seconds() const { return slowest_seconds_; }

 private:
  std::vector<StepMeasurement> kept_;
  std::int64_t kept_every_ = 1;
  std::int64_t taken_ = 0, measured_ = 0, skipped_ = 0;
  std::optional<StepMeasurement> first_without_loss_, first_without_gradient_, first_overflow_;
  bool last_is_extra_ = false;  // kept only as the last one
  double measured_seconds_ = 0, fastest_seconds_ = 0, slowest_seconds_ = 0;
};

}  // namespace zeroplan::program
