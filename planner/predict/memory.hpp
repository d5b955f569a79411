#pragma once

#include <array>
#include <vector>

#include "planner/program/measurement.hpp"
#include "planner/program/step_program.hpp"
#include "planner/units.hpp"

// Memory from a step program. A piece of program is a pair (net change, highest point above its start);
// pieces in sequence and pieces repeated n times are such pairs again, so no layer is walked n times.
namespace zeroplan::predict {

using program::CategoryBytes;

// A point of the program: what runs there and in which iteration of the repeats around it.
struct Place {
  program::Phase phase = program::Phase::setup;
  std::int64_t layer = -1;      // -1: outside the layers
  std::size_t instruction = 0;  // index into StepProgram::code: the acquire that reached the peak
  std::size_t serves = 0;       // the kernel or collective that follows it
};

struct MemoryProfile {
  Bytes peak = 0;              // device bytes, all buffers
  CategoryBytes at_peak{};     // sums to peak
  CategoryBytes persistent{};  // held through the whole step: model states
  Place place;
  Bytes host_peak = 0;  // host bytes of this rank
  CategoryBytes host_at_peak{};
};

// The kernel or collective that the memory instruction at `instruction` is for: the next one.
std::size_t served_by(const program::StepProgram& program, std::size_t instruction);

MemoryProfile read_memory(const program::StepProgram& program);

// One buffer that is alive at the peak.
struct LiveBuffer {
  program::BufferId buffer = program::kNoBuffer;
  std::int64_t instances = 0;
  Bytes bytes = 0;  // of all of them
};

// What is alive at the peak, largest first; sums to profile.peak. Walks to the place found by read_memory.
std::vector<LiveBuffer> live_at_peak(const program::StepProgram& program, const MemoryProfile& profile);

}  // namespace zeroplan::predict
