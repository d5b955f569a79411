#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "planner/describe/machine/cluster.hpp"
#include "planner/predict/kernels.hpp"

// A step as a list of what runs when, instruction by instruction: the same rules as read_time (schedule.hpp),
// with a clock for each row and every layer walked.
namespace zeroplan::predict {

struct TraceEvent {
  std::string_view name;  // of the instruction
  program::Stream stream = program::Stream::compute;
  std::optional<program::GroupKind> group;
  program::Phase phase = program::Phase::forward;
  std::int64_t layer = -1;       // -1: outside the layers
  std::int64_t micro_batch = 0;  // from 0
  bool recomputed = false;
  double start_seconds = 0, seconds = 0;
};

struct Trace {
  double step_seconds = 0;  // read_time's
  std::vector<TraceEvent> events;
  std::int64_t micro_batches = 1;
  std::int64_t left_out = 0;  // micro-batches in the middle, which are like those before them
};

// Empty where the rates or the links are not known. Of more than `most_micro_batches` the first and the last
// are listed; all of them are timed.
Trace read_trace(const program::StepProgram& program, const describe::Cluster& cluster,
                 const KernelRates& rates, std::int64_t most_micro_batches = 4);

}  // namespace zeroplan::predict
