#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/describe/plan/plan.hpp"
#include "planner/predict/prediction.hpp"
#include "planner/program/measurement.hpp"
#include "reports/data.hpp"

namespace zeroplan::reports {

// One figure, predicted and measured. `tolerance`: how far below and above the prediction a measurement may
// be.
struct ComparedFigure {
  std::string key;    // "memory.parameter"
  std::string title;  // "parameters"
  enum class Kind { bytes, count, flops, real } kind = Kind::bytes;
  double predicted = 0, measured = 0;
  double tolerance_below = 0, tolerance_above = 0;

  double difference() const { return measured - predicted; }
  bool ok() const { return difference() >= -tolerance_below && difference() <= tolerance_above; }
};

// The same for what is said in words: where the peak is.
struct ComparedText {
  std::string key, title;
  std::string predicted, measured;

  bool ok() const { return predicted == measured; }
};

struct Comparison {
  std::vector<ComparedFigure> figures;
  std::vector<ComparedText> texts;

  bool ok() const;
};

// Every figure of the prediction that a run measures, of the rank that is furthest off: buffers by category
// at the peak, the peak and where it is, host memory, growth of the process, calls, bytes and moved bytes of
// each collective by group, host copies, FLOPs of the matrix products. What the program says exactly has no
// tolerance; the process has 2 % or 8 MiB a rank, and causal attention may leave out half of its squares.
Comparison compare(const predict::Prediction& prediction, const program::Measurement& measurement);

// A time, or a part of one, predicted and measured. It decides nothing: machines are shared and clocks
// differ.
struct ComparedTime {
  std::string key;        // "time.step"
  std::string title;      // "step"
  bool is_share = false;  // of the step; otherwise seconds
  double predicted = 0, measured = 0;

  // By how much of the measurement the prediction is above it.
  double relative_error() const { return measured > 0 ? predicted / measured - 1 : 0; }
};

// The median step, and of rank 0's mean step: kernels, collectives by group without waiting for other ranks,
// that waiting, copies between device and host, and which share of the step waits for collectives, for their
// traffic and for other ranks. Here they all block the rank. Empty where the prediction has no time.
std::vector<ComparedTime> compare_times(const predict::Prediction& prediction,
                                        const program::Measurement& measurement);

// "forward, layer 3, before matmul".
std::string position_text(const program::StepProgram& program, program::Phase phase, std::int64_t layer,
                          std::size_t serves);

// Times of the measured steps: the median (of those that a long run's log keeps), and rates by it. FLOPs are
// the model's (nothing recomputed) and those that the hardware did as matrix products, per rank.
struct MeasuredSpeed {
  double step_seconds = 0, fastest_seconds = 0, slowest_seconds = 0;
  double tokens_per_second = 0;  // of all ranks
  double model_tflops = 0, hardware_tflops = 0;
};
MeasuredSpeed measured_speed(const predict::Prediction& prediction, const program::Measurement& measurement);

}  // namespace zeroplan::reports
