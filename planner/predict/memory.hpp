#pragma once

#include <array>
#include <vector>

#include "planner/program/measurement.hpp"
#include "planner/program/step_program.hpp"
#include "planner/units.hpp"

// Memory from a step program. A section of it is a pair (net change, highest point above its start); sections in
// sequence and sections repeated n times are such pairs again, so no layer is walked n times.
namespace zeroplan::predict {

using program::CategoryBytes;

// A point of the program: what runs there and in which iteration of the repeats around it.
struct ProgramPoint {
  program::Phase phase = program::Phase::setup;
  std::int64_t layer = -1;      // -1: outside the layers
  std::size_t instruction = 0;  // index into StepProgram::code: the acquire that reached the peak
  std::size_t serves = 0;       // the kernel or collective that follows it
};

struct MemoryProfile {
  Bytes peak = 0;              // device bytes, all buffers
  CategoryBytes at_peak{};     // sums to peak
  CategoryBytes persistent{};  // held through the whole step: model states
  ProgramPoint place;
  Bytes host_peak = 0;  // host bytes of this rank
  CategoryBytes host_at_peak{};
};

// The kernel or collective that the memory instruction at `instruction` is for: the next one.
std::size_t served_by(const program::StepProgram& program, std::size_t instruction);

// Memory of one space in a section, relative to where it starts: what it leaves behind and the highest point on the way.
struct MemoryChange {
  Bytes net = 0;
  Bytes peak = 0;
  CategoryBytes net_by_category{};
  CategoryBytes at_peak{};
  ProgramPoint place;

  void acquire(std::size_t category, Bytes bytes, const ProgramPoint& where);
  // This, then `later` `count` times; the layer register moves by `first`, `first` + `step` ... meanwhile.
  void append(const MemoryChange& later, std::int64_t count = 1, std::int64_t first = 0,
              std::int64_t step = 0);
};

struct SectionMemory {
  MemoryChange device, host;

  void append(const SectionMemory& later, std::int64_t count = 1);
};

MemoryProfile read_memory(const program::StepProgram& program);
// Of instructions [begin, end).
SectionMemory read_memory(const program::StepProgram& program, std::size_t begin, std::size_t end);
// Of a step that is `step`, of which `states` is what it begins with: everything in the setup phase.
MemoryProfile profile_of(const program::StepProgram& program, const SectionMemory& states,
                         const SectionMemory& step);

// One buffer that is alive at the peak.
struct LiveBuffer {
  program::BufferId buffer = program::kNoBuffer;
  std::int64_t instances = 0;
  Bytes bytes = 0;  // of all of them
};

// What is alive at the peak, largest first; sums to profile.peak. Walks to the place found by read_memory.
std::vector<LiveBuffer> live_at_peak(const program::StepProgram& program, const MemoryProfile& profile);

}  // namespace zeroplan::predict
