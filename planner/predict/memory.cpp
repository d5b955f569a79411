#include "planner/predict/memory.hpp"

#include <algorithm>
#include <stdexcept>

#include "planner/predict/repetition.hpp"

namespace zeroplan::predict {

namespace {

using program::Buffer;
using program::Instruction;
using program::Op;
using program::Phase;
using program::Space;
using program::StepProgram;

bool is_structure_or_memory(Op op) {
  return program::is_memory(op) || program::class_of(op) == program::Class::structure;
}

}  // namespace

std::size_t served_by(const StepProgram& program, std::size_t instruction) {
  while (instruction + 1 < program.code.size() && is_structure_or_memory(program.code[instruction].op))
    ++instruction;
  return instruction;
}

void MemoryChange::acquire(std::size_t category, Bytes bytes, const ProgramPoint& where) {
  net += bytes;
  net_by_category[category] += bytes;
  if (net <= peak) return;
  peak = net;
  at_peak = net_by_category;
  place = where;
}

void MemoryChange::append(const MemoryChange& later, std::int64_t count, std::int64_t first,
                          std::int64_t step) {
  const std::int64_t highest = later.net > 0 ? count - 1 : 0;  // the iteration whose peak is the highest
  const Bytes candidate = net + highest * later.net + later.peak;
  if (candidate > peak) {
    peak = candidate;
    for (std::size_t c = 0; c < at_peak.size(); ++c) {
      at_peak[c] = net_by_category[c] + highest * later.net_by_category[c] + later.at_peak[c];
    }
    place = later.place;
    if (step != 0) place.layer = std::max<std::int64_t>(place.layer, 0) + first + highest * step;
  }
  net += count * later.net;
  for (std::size_t c = 0; c < at_peak.size(); ++c) net_by_category[c] += count * later.net_by_category[c];
}

void SectionMemory::append(const SectionMemory& later, std::int64_t count) {
  device.append(later.device, count);
  host.append(later.host, count);
}

SectionMemory read_memory(const StepProgram& program, std::size_t begin, std::size_t end) {
  // One open repeat, with the memory of its body so far.
  struct Frame {
    SectionMemory memory;
    std::size_t repeat = 0;  // instruction that opened it
  };
  std::array<Frame, kDeepestRepeat> frames;
  std::size_t depth = 0;
  Phase phase = phase_at(program, begin);
  for (std::size_t i = begin; i < end; ++i) {
    const Instruction& instruction = program.code[i];
    if (!is_structure_or_memory(instruction.op)) continue;
    SectionMemory& memory = frames[depth].memory;
    switch (instruction.op) {
      case Op::phase:
        phase = static_cast<Phase>(instruction.dims[0]);
        break;
      case Op::repeat:
        if (++depth == kDeepestRepeat) throw std::logic_error("read_memory: repeats nested too deep");
        frames[depth] = Frame{};
        frames[depth].repeat = i;
        break;
      case Op::end_repeat: {
        const auto [count, first, step, close] = program.code[frames[depth].repeat].dims;
        SectionMemory& outer = frames[--depth].memory;
        outer.device.append(memory.device, count, first, step);
        outer.host.append(memory.host, count, first, step);
        break;
      }
      default: {
        if (!program::is_memory(instruction.op)) break;
        const Buffer& buffer = program.buffers[instruction.operands[0].buffer];
        MemoryChange& change = buffer.space == Space::device ? memory.device : memory.host;
        change.acquire(static_cast<std::size_t>(buffer.category),
                       program::instances_taken(instruction.op, buffer.instances) * buffer.bytes,
                       {phase, -1, i, i});
        break;
      }
    }
  }
  return frames[0].memory;
}

MemoryProfile profile_of(const StepProgram& program, const SectionMemory& states, const SectionMemory& step) {
  MemoryProfile profile;
  profile.peak = step.device.peak;
  profile.at_peak = step.device.at_peak;
  profile.persistent = states.device.net_by_category;
  profile.place = step.device.place;
  profile.place.serves = served_by(program, profile.place.instruction);
  profile.host_peak = step.host.peak;
  profile.host_at_peak = step.host.at_peak;
  return profile;
}

MemoryProfile read_memory(const StepProgram& program) {
  const auto is_second_phase = [](const Instruction& instruction) {
    return instruction.op == Op::phase && static_cast<Phase>(instruction.dims[0]) != Phase::setup;
  };
  const auto found = std::find_if(program.code.begin(), program.code.end(), is_second_phase);
  const std::size_t end = program.code.size();
  const std::size_t setup =
      found == program.code.end() ? 0 : static_cast<std::size_t>(found - program.code.begin());
  const SectionMemory states = read_memory(program, 0, setup);
  SectionMemory step = states;
  step.append(read_memory(program, setup, end));
  return profile_of(program, states, step);
}

namespace {

// Live instances of each buffer while walking to one place.
class Census {
 public:
  explicit Census(const StepProgram& program) : program_(program), counts_(program.buffers.size(), 0) {}

  // Instructions [begin, end) up to and including `place`; true when it was there.
  bool walk_to(std::size_t begin, std::size_t end, std::size_t place) {
    for (std::size_t i = begin; i < end; ++i) {
      const Instruction& instruction = program_.code[i];
      if (instruction.op == Op::repeat) {
        const auto close = static_cast<std::size_t>(instruction.dims[3]);
        const bool inside = place > i && place < close;
        const Bytes net = net_bytes(i + 1, close);
        const std::int64_t times = !inside ? instruction.dims[0] : (net > 0 ? instruction.dims[0] - 1 : 0);
        add(i + 1, close, times);
        if (inside) return walk_to(i + 1, close, place);
        i = close;
        continue;
      }
      touch(instruction, 1);
      if (i == place) return true;
    }
    return false;
  }

  const std::vector<std::int64_t>& counts() const { return counts_; }

 private:
  void touch(const Instruction& instruction, std::int64_t times) {
    if (!program::is_memory(instruction.op)) return;
    const program::BufferId id = instruction.operands[0].buffer;
    counts_[id] += times * program::instances_taken(instruction.op, program_.buffers[id].instances);
  }

  void add(std::size_t begin, std::size_t end, std::int64_t times) {
    for (std::size_t i = begin; i < end; ++i) {
      const Instruction& instruction = program_.code[i];
      if (instruction.op == Op::repeat) {
        const auto close = static_cast<std::size_t>(instruction.dims[3]);
        add(i + 1, close, times * instruction.dims[0]);
        i = close;
      } else {
        touch(instruction, times);
      }
    }
  }

  Bytes net_bytes(std::size_t begin, std::size_t end) const {
    Census body(program_);
    body.add(begin, end, 1);
    Bytes bytes = 0;
    for (std::size_t b = 0; b < body.counts_.size(); ++b) {
      if (program_.buffers[b].space == Space::device) bytes += body.counts_[b] * program_.buffers[b].bytes;
    }
    return bytes;
  }

  const StepProgram& program_;
  std::vector<std::int64_t> counts_;
};

}  // namespace

std::vector<LiveBuffer> live_at_peak(const StepProgram& program, const MemoryProfile& profile) {
  Census census(program);
  census.walk_to(0, program.code.size(), profile.place.instruction);
  std::vector<LiveBuffer> live;
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    const std::int64_t instances = census.counts()[b];
    const Buffer& buffer = program.buffers[b];
    if (instances == 0 || buffer.space != Space::device) continue;
    live.push_back({static_cast<program::BufferId>(b), instances, instances * buffer.bytes});
  }
  std::stable_sort(live.begin(), live.end(),
                   [](const LiveBuffer& a, const LiveBuffer& b) { return a.bytes > b.bytes; });
  return live;
}

}  // namespace zeroplan::predict
