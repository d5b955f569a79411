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

// A piece of program relative to where it starts: what it leaves behind and the highest point on the way.
struct Piece {
  Bytes net = 0;
  Bytes peak = 0;
  CategoryBytes net_by_category{};
  CategoryBytes at_peak{};
  Place place;

  void acquire(std::size_t category, Bytes bytes) {
    net += bytes;
    net_by_category[category] += bytes;
  }
  bool is_new_peak() const { return net > peak; }
  void set_peak(const Place& where) {
    peak = net;
    at_peak = net_by_category;
    place = where;
  }

  // This piece, then `body` `count` times.
  void append(const Piece& body, std::int64_t count, std::int64_t first, std::int64_t step) {
    const std::int64_t highest = body.net > 0 ? count - 1 : 0;  // the iteration whose peak is the highest
    const Bytes candidate = net + highest * body.net + body.peak;
    if (candidate > peak) {
      peak = candidate;
      for (std::size_t c = 0; c < at_peak.size(); ++c) {
        at_peak[c] = net_by_category[c] + highest * body.net_by_category[c] + body.at_peak[c];
      }
      place = body.place;
      if (step != 0) place.layer = std::max<std::int64_t>(place.layer, 0) + first + highest * step;
    }
    net += count * body.net;
    for (std::size_t c = 0; c < at_peak.size(); ++c) net_by_category[c] += count * body.net_by_category[c];
  }
};

// One open repeat, with the memory of its body so far.
struct Frame {
  Piece device;
  Piece host;
  std::size_t repeat = 0;  // instruction that opened it
};

bool is_structure_or_memory(Op op) {
  return program::is_memory(op) || program::class_of(op) == program::Class::structure;
}

}  // namespace

std::size_t served_by(const StepProgram& program, std::size_t instruction) {
  while (instruction + 1 < program.code.size() && is_structure_or_memory(program.code[instruction].op))
    ++instruction;
  return instruction;
}

MemoryProfile read_memory(const StepProgram& program) {
  MemoryProfile profile;
  std::array<Frame, kDeepestRepeat> frames;
  std::size_t depth = 0;
  Phase phase = Phase::setup;
  for (std::size_t i = 0; i < program.code.size(); ++i) {
    const Instruction& instruction = program.code[i];
    if (!is_structure_or_memory(instruction.op)) continue;
    Frame& frame = frames[depth];
    switch (instruction.op) {
      case Op::phase:
        if (phase == Phase::setup) profile.persistent = frame.device.net_by_category;
        phase = static_cast<Phase>(instruction.dims[0]);
        break;
      case Op::repeat:
        if (++depth == kDeepestRepeat) throw std::logic_error("read_memory: repeats nested too deep");
        frames[depth] = Frame{};
        frames[depth].repeat = i;
        break;
      case Op::end_repeat: {
        const Instruction& repeat = program.code[frame.repeat];
        Frame& outer = frames[--depth];
        outer.device.append(frame.device, repeat.dims[0], repeat.dims[1], repeat.dims[2]);
        outer.host.append(frame.host, repeat.dims[0], repeat.dims[1], repeat.dims[2]);
        break;
      }
      default: {
        if (!program::is_memory(instruction.op)) break;
        const Buffer& buffer = program.buffers[instruction.operands[0].buffer];
        Piece& piece = buffer.space == Space::device ? frame.device : frame.host;
        piece.acquire(static_cast<std::size_t>(buffer.category),
                      program::instances_taken(instruction.op, buffer.instances) * buffer.bytes);
        if (piece.is_new_peak()) piece.set_peak({phase, -1, i, i});
        break;
      }
    }
  }
  const Frame& whole = frames[0];
  profile.peak = whole.device.peak;
  profile.at_peak = whole.device.at_peak;
  profile.place = whole.device.place;
  profile.place.serves = served_by(program, profile.place.instruction);
  profile.host_peak = whole.host.peak;
  profile.host_at_peak = whole.host.at_peak;
  return profile;
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
