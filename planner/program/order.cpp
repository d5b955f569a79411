#include "planner/program/order.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "planner/instructions/table.hpp"

namespace zeroplan::program {
namespace {

// One execution of an instruction while the program is walked, by number from 0.
using Execution = std::int32_t;
constexpr Execution kNone = -1;
constexpr std::size_t kCompute = static_cast<std::size_t>(Stream::compute);

// For each stream, how many of its executions something is behind.
using Clock = std::array<std::int32_t, kStreams>;
// For each stream, its latest execution of some kind.
using OfStreams = std::array<Execution, kStreams>;

constexpr OfStreams kNoneOfAny = [] {
  OfStreams none{};
  none.fill(kNone);
  return none;
}();

void join(Clock& clock, const Clock& other) {
  for (std::size_t s = 0; s < kStreams; ++s) clock[s] = std::max(clock[s], other[s]);
}

// What happened to one instance of a buffer.
struct Instance {
  Execution write = kNone;        // the last one
  OfStreams reads = kNoneOfAny;   // since then
  Execution since = kNone;        // the last kernel that may have used its memory before it was acquired
  OfStreams before = kNoneOfAny;  // what still used memory that was free then
};

// Layers [begin, end) that are not walked: they repeat what others do, with the same slots of every ring.
struct Skipped {
  std::int64_t begin = 0, end = 0;
};

// Which layers have to be walked.
class Extent {
 public:
  // `shared`: the buffers that count, by their index.
  Extent(const StepProgram& program, const std::vector<bool>& shared) {
    if (slots_of(program) > 1) return;  // sets of instances have no layers that are left out
    std::int64_t stride = 1;
    for (const Instruction& instruction : program.code) {
      if (instruction.op == Op::repeat) stride = std::max(stride, std::abs(instruction.dims[2]));
    }
    for (const UnitPlacement& unit : program.units) {
      if (!unit.is_layer) continue;
      std::int64_t slots = 1, period = stride;
      for (std::size_t b = 0; b < program.buffers.size(); ++b) {
        const std::int64_t instances = program.buffers[b].instances;
        if (!shared[b] || instances >= unit.layers) continue;
        slots = std::max(slots, instances);
        period = std::lcm(period, instances);
      }
      const std::int64_t least = (slots + 2) * stride;
      const std::int64_t walked = least + (unit.layers - least) % period;
      if (least >= unit.layers || walked >= unit.layers) continue;
      const std::int64_t front = round_up(div_ceil(least, 2), stride);
      skipped_.push_back({unit.first_layer + front, unit.first_layer + front + unit.layers - walked});
    }
  }

  bool has(std::int64_t layer) const {
    return std::none_of(skipped_.begin(), skipped_.end(),
                        [&](const Skipped& s) { return layer >= s.begin && layer < s.end; });
  }

  // The layer that takes the place of `layer + offset` where that is not walked: behind the gap or before it, as the
  // offset points.
  std::int64_t reached(std::int64_t layer, std::int64_t offset) const {
    layer += offset;
    for (const Skipped& s : skipped_) {
      if (layer >= s.begin && layer < s.end)
        return offset > 0 ? layer + (s.end - s.begin) : layer - (s.end - s.begin);
    }
    return layer;
  }

  // Where instance `index` of `buffer` is kept among those that are walked.
  std::size_t place(const Buffer& buffer, std::int64_t index) const {
    std::int64_t place = index;
    for (const Skipped& s : skipped_) {
      if (s.begin >= buffer.first_layer && index + buffer.first_layer >= s.end) place -= s.end - s.begin;
    }
    return static_cast<std::size_t>(place);
  }

 private:
  std::vector<Skipped> skipped_;
};

// Instructions that are the same but for the layers of their operands share an event: loops, what is peeled off them,
// and the last micro-batch.
class EventNames {
 public:
  explicit EventNames(const StepProgram& program) : of_(program.code.size()) {
    std::size_t buckets = 64;
    while (buckets < 2 * program.code.size()) buckets *= 2;
    std::vector<std::uint32_t> table(buckets, kFree);
    for (std::size_t i = 0; i < program.code.size(); ++i) {
      const Instruction& instruction = program.code[i];
      if (!is_executed(instruction.op)) continue;
      std::size_t bucket = hash(instruction) & (buckets - 1);
      while (table[bucket] != kFree && !same(program.code[table[bucket]], instruction)) {
        bucket = (bucket + 1) & (buckets - 1);
      }
      if (table[bucket] == kFree) {
        table[bucket] = static_cast<std::uint32_t>(i);
        of_[i] = count_++;
      } else {
        of_[i] = of_[table[bucket]];
      }
    }
  }

  std::uint16_t of(std::size_t instruction) const { return of_[instruction]; }
  std::size_t count() const { return count_; }

 private:
  static constexpr std::uint32_t kFree = 0xffffffff;

  static std::size_t hash(const Instruction& instruction) {
    std::size_t value =
        static_cast<std::size_t>(instruction.op) * 7 + static_cast<std::size_t>(instruction.stream);
    for (const Operand& operand : instruction.operands) value = value * 1000003 + operand.buffer;
    return value ^ value >> 17;
  }
  static bool same(const Instruction& a, const Instruction& b) {
    if (a.op != b.op || a.stream != b.stream || a.group != b.group) return false;
    for (std::size_t i = 0; i < kMaxOperands; ++i) {
      if (a.operands[i].buffer != b.operands[i].buffer) return false;
    }
    return true;
  }

  std::vector<std::uint16_t> of_;
  std::uint16_t count_ = 0;
};

// Buffers that something off the compute stream uses. All others are in order by themselves.
std::vector<bool> shared_buffers(const StepProgram& program) {
  std::vector<bool> shared(program.buffers.size());
  for (const Instruction& instruction : program.code) {
    if (instruction.stream == Stream::compute || !is_executed(instruction.op)) continue;
    for (const Operand& operand : instruction.operands) {
      if (operand.buffer != kNoBuffer) shared[program.holder_of(operand.buffer)] = true;
    }
  }
  return shared;
}

}  // namespace

std::int64_t slots_of(const StepProgram& program) {
  std::int64_t slots = 1;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.slots > 1) slots = std::lcm(slots, buffer.slots);
  }
  return slots;
}

std::int64_t walked_iterations(std::int64_t count, std::int64_t slots) {
  constexpr std::int64_t kBeyondRing = 2;
  const std::int64_t least = slots + kBeyondRing;
  return count <= least ? count : least + (count - least) % slots;
}

namespace {

class Walk {
 public:
  explicit Walk(StepProgram& program)
      : program_(program),
        shared_(shared_buffers(program)),
        extent_(program, shared_),
        names_(program),
        slots_(slots_of(program)),
        executions_of_(names_.count()) {
    place_instances();
    executions_.reserve(2048);
    behind_.reserve(2048);
  }

  void derive() {
    run(0, program_.code.size());
    drop_implied();
    write();
  }

 private:
  struct Executed {
    std::uint32_t instruction = 0;  // the program's length: all streams waited for all
    std::uint16_t name = 0;
    std::uint8_t stream = 0;
    std::int32_t tick = 0;    // on its stream, from 1
    std::int32_t number = 0;  // of its name, from 0
  };
  // The youngest execution of `name` that `instruction` ever had to wait for.
  struct Found {
    std::uint32_t instruction = 0;
    std::uint16_t name = 0;
    std::int32_t age = 0;
    bool is_needed = false;
  };

  void place_instances() {
    first_instance_.assign(program_.buffers.size(), kNotShared);
    std::size_t instances = 0;
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
      if (!shared_[b]) continue;
      first_instance_[b] = instances;
      instances += extent_.place(program_.buffers[b], program_.buffers[b].instances - 1) + 1;
    }
    instances_.resize(instances);
  }

  Instance* instance(Operand operand) {
    const BufferId buffer = program_.holder_of(operand.buffer);
    if (first_instance_[buffer] == kNotShared) return nullptr;
    const Buffer& description = program_.buffers[buffer];
    const std::int64_t index = description.instance_of(extent_.reached(layer_, operand.layer_offset),
                                                       iteration_ + operand.iteration_offset);
    return &instances_[first_instance_[buffer] + extent_.place(description, index)];
  }

  void run(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const Instruction& instruction = program_.code[i];
      switch (class_of(instruction.op)) {
        case Class::structure:
          if (instruction.op == Op::repeat) {
            const auto [count, first, step, close] = instruction.dims;
            const std::int64_t times = step == 0 ? walked_iterations(count, slots_) : count;
            const auto outer = std::pair(layer_, iteration_);
            for (std::int64_t k = 0; k < times; ++k) {
              (step == 0 ? iteration_ : layer_) = step == 0 ? k : outer.first + first + k * step;
              if (step == 0 || extent_.has(layer_)) run(i + 1, static_cast<std::size_t>(close));
            }
            std::tie(layer_, iteration_) = outer;
            i = static_cast<std::size_t>(close);
          } else if (instruction.op == Op::wait_for_all) {
            executions_.push_back({static_cast<std::uint32_t>(program_.code.size()), 0, 0, 0, 0});
            behind_.emplace_back();
            clocks_.fill(ticks_);
          }
          break;
        case Class::memory:
          memory(instruction);
          break;
        default:
          execute(i);
      }
    }
  }

  void memory(const Instruction& instruction) {
    const Operand operand = instruction.operands[0];
    const Buffer& buffer = program_.buffers[operand.buffer];
    OfStreams& open = open_[static_cast<std::size_t>(buffer.space)];
    const bool all = row_of(instruction.op).takes.every_instance;
    const bool acquires = row_of(instruction.op).takes.sign > 0;
    const bool is_shared = first_instance_[operand.buffer] != kNotShared;
    Execution& kernel = kernel_before_release_[static_cast<std::size_t>(buffer.space)];
    if (acquires) {
      for (std::size_t s = 0; s < kStreams; ++s) pending_[s] = std::max(pending_[s], open[s]);
    } else {
      kernel = last_on_[kCompute];
    }
    if (!is_shared) return;
    const std::size_t first = all ? first_instance_[operand.buffer]
                                  : static_cast<std::size_t>(instance(operand) - instances_.data());
    const std::size_t count = all ? extent_.place(buffer, buffer.instances - 1) + 1 : 1;
    for (std::size_t i = first; i < first + count; ++i) {
      Instance& one = instances_[i];
      if (!acquires) leave_open(one, open);
      one = Instance{};
      if (!acquires) continue;
      one.since = kernel;
      one.before = open;
    }
  }

  // What still uses an instance that is released.
  void leave_open(const Instance& instance, OfStreams& open) const {
    const auto leave = [&](Execution execution) {
      if (execution == kNone || is_behind(kCompute, execution)) return;
      Execution& latest = open[executions_[static_cast<std::size_t>(execution)].stream];
      latest = std::max(latest, execution);
    };
    leave(instance.write);
    for (const Execution read : instance.reads) leave(read);
    for (const Execution before : instance.before) leave(before);
  }

  bool is_behind(std::size_t stream, Execution execution) const {
    const Executed& other = executions_[static_cast<std::size_t>(execution)];
    return other.stream == stream || clocks_[stream][other.stream] >= other.tick;
  }

  void need(std::size_t instruction, std::size_t stream, Execution execution) {
    if (execution == kNone || is_behind(stream, execution)) return;
    const Executed& other = executions_[static_cast<std::size_t>(execution)];
    const std::int32_t age = executions_of_[other.name] - 1 - other.number;
    const auto found = std::find_if(found_.begin(), found_.end(), [&](const Found& f) {
      return f.instruction == instruction && f.name == other.name;
    });
    if (found == found_.end()) {
      found_.push_back({static_cast<std::uint32_t>(instruction), other.name, age});
    } else {
      found->age = std::min(found->age, age);
    }
    join(clocks_[stream], behind_[static_cast<std::size_t>(execution)]);
  }

  void execute(std::size_t index) {
    const Instruction& instruction = program_.code[index];
    const InstructionRow& row = row_of(instruction.op);
    const auto stream = static_cast<std::size_t>(instruction.stream);
    const auto now = static_cast<Execution>(executions_.size());
    if (stream == kCompute) {
      for (Execution& execution : pending_) {
        need(index, stream, execution);
        execution = kNone;
      }
    }
    // A group's collectives are called in the same order on every rank, one after the other.
    if (instruction.group != kNoGroup) {
      Execution& collective = last_of_[instruction.group];
      need(index, stream, collective);
      collective = now;
    }
    for (std::size_t i = 0; i < kMaxOperands; ++i) {
      if (instruction.operands[i].buffer == kNoBuffer) continue;
      Instance* const used = instance(instruction.operands[i]);
      if (used == nullptr) continue;
      for (const Execution before : used->before) need(index, stream, before);
      if (stream != kCompute) need(index, stream, used->since);
      need(index, stream, used->write);
      if (row.operands[i].role == Role::in) continue;
      for (const Execution read : used->reads) need(index, stream, read);
    }
    for (std::size_t i = 0; i < kMaxOperands; ++i) {
      if (instruction.operands[i].buffer == kNoBuffer) continue;
      Instance* const used = instance(instruction.operands[i]);
      if (used == nullptr) continue;
      if (row.operands[i].role == Role::in) {
        used->reads[stream] = now;
      } else {
        used->write = now;
        used->reads = kNoneOfAny;
      }
    }
    const std::uint16_t name = names_.of(index);
    clocks_[stream][stream] = ++ticks_[stream];
    executions_.push_back({static_cast<std::uint32_t>(index), name, static_cast<std::uint8_t>(stream),
                           ticks_[stream], executions_of_[name]++});
    behind_.push_back(clocks_[stream]);
    last_on_[stream] = now;
  }

  // The youngest age of a wait may reach further than what it was found for, so that others say nothing new. Walks the
  // executions once more, with the waits as they will be, and keeps those that ever hold something back.
  void drop_implied() {
    std::sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) {
      return a.instruction != b.instruction ? a.instruction < b.instruction : a.name < b.name;
    });
    std::vector<std::uint32_t> first(program_.code.size() + 1, 0);
    for (const Found& wait : found_) ++first[wait.instruction + 1];
    std::partial_sum(first.begin(), first.end(), first.begin());
    std::vector<std::vector<Execution>> of_name(names_.count());
    std::array<Clock, kStreams> clocks{};
    Clock ticks{};
    for (std::size_t e = 0; e < executions_.size(); ++e) {
      const Executed& executed = executions_[e];
      if (executed.instruction == program_.code.size()) {
        clocks.fill(ticks);
        for (std::vector<Execution>& list : of_name) list.clear();
        continue;
      }
      Clock& clock = clocks[executed.stream];
      const auto begin = first[executed.instruction], end = first[executed.instruction + 1];
      const auto target_of = [&](const Found& wait) {
        const std::vector<Execution>& list = of_name[wait.name];
        const auto age = static_cast<std::size_t>(wait.age);
        return age < list.size() ? list[list.size() - 1 - age] : kNone;
      };
      for (auto w = begin; w < end; ++w) {
        const Execution target = target_of(found_[w]);
        if (target == kNone) continue;
        const Executed& other = executions_[static_cast<std::size_t>(target)];
        bool is_implied = clock[other.stream] >= other.tick;
        for (auto o = begin; o < end && !is_implied; ++o) {
          const Execution also = o == w ? kNone : target_of(found_[o]);
          is_implied = also != kNone && behind_[static_cast<std::size_t>(also)][other.stream] >= other.tick;
        }
        found_[w].is_needed = found_[w].is_needed || !is_implied;
      }
      for (auto w = begin; w < end; ++w) {
        const Execution target = target_of(found_[w]);
        if (target != kNone) join(clock, behind_[static_cast<std::size_t>(target)]);
      }
      clock[executed.stream] = executed.tick;
      ticks[executed.stream] = executed.tick;
      behind_[e] = clock;
      of_name[executed.name].push_back(static_cast<Execution>(e));
    }
    std::erase_if(found_, [](const Found& wait) { return !wait.is_needed; });
  }

  void write() {
    Order& order = program_.order;
    order = {};
    std::vector<std::uint16_t> event_of(names_.count(), Order::kNoEvent);
    for (const Found& wait : found_) {
      std::uint16_t& event = event_of[wait.name];
      if (event == Order::kNoEvent) {
        event = static_cast<std::uint16_t>(order.events.size());
        order.events.emplace_back();
      }
      const auto age = static_cast<std::uint16_t>(wait.age);
      order.waits.push_back({event, age});
      order.events[event].oldest = std::max(order.events[event].oldest, age);
    }
    order.mark_of.assign(program_.code.size(), 0);
    std::size_t wait = 0;
    for (std::size_t i = 0; i < program_.code.size(); ++i) {
      if (!is_executed(program_.code[i].op)) continue;
      Order::Mark mark{static_cast<std::uint32_t>(wait), 0, event_of[names_.of(i)]};
      for (; wait < found_.size() && found_[wait].instruction == i; ++wait) ++mark.waits;
      if (mark.waits == 0 && mark.signals == Order::kNoEvent) continue;
      if (mark.signals != Order::kNoEvent) order.events[mark.signals].stream = program_.code[i].stream;
      order.mark_of[i] = static_cast<std::uint16_t>(order.marks.size());
      order.marks.push_back(mark);
    }
  }

  static constexpr std::size_t kNotShared = std::numeric_limits<std::size_t>::max();

  StepProgram& program_;
  std::vector<bool> shared_;  // by buffer
  Extent extent_;
  EventNames names_;
  std::int64_t slots_;
  std::int64_t layer_ = 0, iteration_ = 0;   // the registers
  std::vector<std::int32_t> executions_of_;  // by name
  std::vector<std::size_t> first_instance_;  // by buffer, into instances_
  std::vector<Instance> instances_;
  std::vector<Executed> executions_;
  std::vector<Clock> behind_;  // by execution: what whoever waits for it is behind
  std::array<Clock, kStreams> clocks_{};
  Clock ticks_{};
  OfStreams last_on_ = kNoneOfAny;
  std::array<Execution, 2> kernel_before_release_{kNone,
                                                  kNone};  // by space: the last one before the last release
  OfStreams pending_ = kNoneOfAny;                         // what the next kernel waits for
  std::array<OfStreams, 2> open_{kNoneOfAny,
                                 kNoneOfAny};  // by space: what used memory that was released, off compute
  std::array<Execution, kMostGroups> last_of_ = [] {
    std::array<Execution, kMostGroups> none{};
    none.fill(kNone);
    return none;
  }();
  std::vector<Found> found_;
};

}  // namespace

void derive_order(StepProgram& program) { Walk(program).derive(); }

}  // namespace zeroplan::program
