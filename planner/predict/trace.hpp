#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "planner/describe/machine/cluster.hpp"
#include "planner/predict/kernels.hpp"
#include "planner/program/measurement.hpp"
#include "planner/units.hpp"

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
  double bytes = 0,
         sent_bytes =
             0;  // of a collective's whole vector, and by this rank; of a copy, both are what it copies
};

// What waits for traffic: an event that began no sooner than another one was done.
struct TraceFlow {
  std::size_t from = 0, to = 0;  // of the trace's events
};

// What a device's memory holds from `seconds` on: each change, while the kernels before it are over.
struct MemoryMoment {
  double seconds = 0;
  program::Phase phase = program::Phase::setup;
  std::int64_t layer = -1;  // -1: outside the layers
  std::int64_t micro_batch = 0;
  std::size_t instruction = 0;  // that took or gave back, index into StepProgram::code
  program::CategoryBytes held{};

  Bytes bytes() const;  // of all categories
};

struct Trace {
  double step_seconds = 0;  // read_time's
  std::vector<TraceEvent> events;
  std::vector<TraceFlow> flows;  // from collectives and copies
  std::vector<MemoryMoment>
      memory;  // rising; the highest is MemoryProfile::peak, unless it is in what is left out
  std::int64_t micro_batches = 1;
  std::int64_t left_out = 0;  // micro-batches in the middle, which are like those before them
};

// Empty where the rates or the links are not known. Of more than `most_micro_batches` the first and the last
// are listed; all of them are timed.
Trace read_trace(const program::StepProgram& program, const describe::Cluster& cluster,
                 const KernelRates& rates, std::int64_t most_micro_batches = 4);

}  // namespace zeroplan::predict
