#include "tests/support/order_prover.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "planner/instructions/table.hpp"
#include "tests/support/unrolled.hpp"

namespace zeroplan::test {
namespace {

using program::Instruction;
using program::kStreams;
using program::Op;
using program::Order;
using program::StepProgram;

constexpr std::size_t kSpaces = 2;

// Addresses of what is held in one space.
class Memory {
 public:
  explicit Memory(Placement placement) : placement_(placement) {}

  Bytes take(Bytes bytes) {
    if (placement_ == Placement::stack) return std::exchange(end_, end_ + bytes);
    auto best = free_.end();
    for (auto piece = free_.begin(); piece != free_.end(); ++piece) {
      if (piece->second >= bytes && (best == free_.end() || piece->second < best->second)) best = piece;
    }
    if (best == free_.end()) return std::exchange(end_, end_ + bytes);
    const auto [begin, size] = *best;
    free_.erase(best);
    if (size > bytes) free_.emplace(begin + bytes, size - bytes);
    return begin;
  }

  void give_back(Bytes begin, Bytes bytes) {
    if (placement_ == Placement::stack) {
      end_ = begin;
      return;
    }
    auto piece = free_.emplace(begin, bytes).first;
    const auto next = std::next(piece);
    if (next != free_.end() && next->first == piece->first + piece->second) {
      piece->second += next->second;
      free_.erase(next);
    }
    if (piece == free_.begin()) return;
    const auto before = std::prev(piece);
    if (before->first + before->second != piece->first) return;
    before->second += piece->second;
    free_.erase(piece);
  }

 private:
  Placement placement_;
  Bytes end_ = 0;
  std::map<Bytes, Bytes> free_;
};

class Unroller {
 public:
  Unroller(const StepProgram& program, Placement placement)
      : program_(program), memory_{Memory(placement), Memory(placement)} {}

  Unrolled run(int steps) {
    for (int step = 0; step < steps; ++step) {
      for_each_executed(program_, [&](std::size_t index, const Instruction& instruction, std::int64_t layer,
                                      std::int64_t iteration, program::Phase phase) {
        if (step == 0 || phase != program::Phase::setup) one(index, instruction, layer, iteration);
      });
    }
    for (Holding& holding : result_.holdings) {
      if (holding.released == 0) holding.released = ++events_;
    }
    return std::move(result_);
  }

 private:
  using Key = std::pair<program::BufferId, std::int64_t>;
  struct Place {
    Bytes begin = 0;
    std::int64_t holding = -1;
  };

  void one(std::size_t index, const Instruction& instruction, std::int64_t layer, std::int64_t iteration) {
    for_each_taken(program_, instruction, layer, iteration,
                   [this](program::BufferId buffer, std::int64_t instance, bool acquires) {
                     acquires ? acquire({buffer, instance}) : release({buffer, instance});
                   });
    if (instruction.op == Op::wait_for_all) result_.executions.push_back({program_.code.size(), 0, {}});
    if (is_executed(instruction.op)) execute(index, instruction, layer, iteration);
  }

  std::size_t space_of(program::BufferId buffer) const {
    return static_cast<std::size_t>(program_.buffers[buffer].space);
  }

  void acquire(Key key) {
    const std::size_t space = space_of(key.first);
    held_[key] = {memory_[space].take(program_.buffers[key.first].bytes),
                  static_cast<std::int64_t>(result_.holdings.size())};
    result_.holdings.push_back({space, ++events_, 0});
  }

  void release(Key key) {
    const auto place = held_.find(key);
    if (place == held_.end()) return;
    memory_[space_of(key.first)].give_back(place->second.begin, program_.buffers[key.first].bytes);
    result_.holdings[static_cast<std::size_t>(place->second.holding)].released = ++events_;
    held_.erase(place);
  }

  void execute(std::size_t index, const Instruction& instruction, std::int64_t layer,
               std::int64_t iteration) {
    Execution execution{index, static_cast<std::size_t>(instruction.stream), {}};
    const program::InstructionRow& row = program::row_of(instruction.op);
    for (std::size_t i = 0; i < program::kMaxOperands; ++i) {
      const program::Operand operand = instruction.operands[i];
      if (operand.buffer == program::kNoBuffer) continue;
      const program::Buffer& buffer = program_.buffers[operand.buffer];
      const program::BufferId root = buffer.parent == program::kNoBuffer ? operand.buffer : buffer.parent;
      const auto place = held_.find({root, instance_of(program_, operand, layer, iteration)});
      if (place == held_.end()) {
        result_.not_held.push_back(fmt::format("{} uses {}", program::name_of(instruction.op), buffer.name));
        continue;
      }
      const Bytes size = program::bytes_of(buffer.type);
      const Bytes begin = place->second.begin + buffer.offset * size;
      execution.touches.push_back({space_of(root), begin, begin + buffer.elements * size,
                                   row.operands[i].role != program::Role::in, place->second.holding});
    }
    if (instruction.group != program::kNoGroup) {
      execution.touches.push_back({kSpaces + static_cast<std::size_t>(instruction.group), 0, 1, true, -1});
    }
    result_.executions.push_back(std::move(execution));
  }

  const StepProgram& program_;
  std::array<Memory, kSpaces> memory_;
  std::map<Key, Place> held_;
  std::size_t events_ = 0;
  Unrolled result_;
};

// Which execution each wait names, as the executions go by.
class Targets {
 public:
  explicit Targets(const StepProgram& program) : program_(program), of_event_(program.order.events.size()) {}

  template <class Visit>
  void of(const Execution& execution, Visit&& visit) const {
    for (const Order::Wait& wait : program_.order.waits_of(execution.instruction)) {
      const std::vector<std::size_t>& done = of_event_[wait.event];
      if (wait.age < done.size()) visit(done[done.size() - 1 - wait.age]);
    }
  }
  void ran(const Execution& execution, std::size_t number) {
    const std::uint16_t event = program_.order.mark(execution.instruction).signals;
    if (event != Order::kNoEvent) of_event_[event].push_back(number);
  }
  void clear() {
    for (std::vector<std::size_t>& done : of_event_) done.clear();
  }

 private:
  const StepProgram& program_;
  std::vector<std::vector<std::size_t>> of_event_;
};

// Conflicts, once for each pair of instructions.
class Found {
 public:
  Found(const StepProgram& program, const Unrolled& unrolled)
      : program_(program), unrolled_(unrolled), texts_(unrolled.not_held) {}

  void add(std::size_t before, std::size_t after) {
    const std::size_t a = unrolled_.executions[before].instruction,
                      b = unrolled_.executions[after].instruction;
    if (seen_.insert({a, b}).second) texts_.push_back(name(a) + " and " + name(b));
  }
  Conflicts take() { return std::move(texts_); }

 private:
  std::string name(std::size_t index) const {
    const Instruction& instruction = program_.code[index];
    return fmt::format("{} on {}", program::name_of(instruction.op), program::name_of(instruction.stream));
  }

  const StepProgram& program_;
  const Unrolled& unrolled_;
  std::set<std::pair<std::size_t, std::size_t>> seen_;
  Conflicts texts_;
};

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

// Who touched a range of bytes last.
struct Cell {
  Bytes end = 0;
  std::size_t write = kNone;
  std::array<std::size_t, kStreams> reads = [] {
    std::array<std::size_t, kStreams> none{};
    none.fill(kNone);
    return none;
  }();
};

// Ranges of bytes that were touched alike.
class Cells {
 public:
  template <class Visit>
  void over(Bytes begin, Bytes end, Visit&& visit) {
    split(begin);
    split(end);
    for (Bytes at = begin; at < end;) {
      auto cell = cells_.lower_bound(at);
      if (cell == cells_.end() || cell->first > at) {
        Cell fresh;
        fresh.end = cell == cells_.end() ? end : std::min(end, cell->first);
        cell = cells_.emplace(at, fresh).first;
      }
      visit(cell->second);
      at = cell->second.end;
    }
  }

 private:
  void split(Bytes at) {
    auto cell = cells_.upper_bound(at);
    if (cell == cells_.begin()) return;
    --cell;
    if (cell->first >= at || cell->second.end <= at) return;
    Cell rest = cell->second;
    cell->second.end = at;
    cells_.emplace(at, rest);
  }

  std::map<Bytes, Cell> cells_;
};

}  // namespace

Unrolled unroll(const StepProgram& program, Placement placement, int steps) {
  return Unroller(program, placement).run(steps);
}

Conflicts conflicts_by_clocks(const StepProgram& program, const Unrolled& unrolled) {
  using Clock = std::array<std::int64_t, kStreams>;
  Found found(program, unrolled);
  Targets targets(program);
  std::vector<Clock> clock_of(unrolled.executions.size());
  std::vector<std::int64_t> tick_of(unrolled.executions.size());
  std::array<Clock, kStreams> clocks{};
  Clock ticks{};
  std::vector<Cells> spaces(kSpaces + program::kMostGroups);
  for (std::size_t e = 0; e < unrolled.executions.size(); ++e) {
    const Execution& execution = unrolled.executions[e];
    if (execution.instruction == program.code.size()) {
      clocks.fill(ticks);
      targets.clear();
      continue;
    }
    Clock& clock = clocks[execution.stream];
    targets.of(execution, [&](std::size_t target) {
      for (std::size_t s = 0; s < kStreams; ++s) clock[s] = std::max(clock[s], clock_of[target][s]);
    });
    tick_of[e] = clock[execution.stream] = ++ticks[execution.stream];
    const auto check = [&](std::size_t before) {
      if (before == kNone || before == e) return;
      if (clock[unrolled.executions[before].stream] < tick_of[before]) found.add(before, e);
    };
    for (const Touch& touch : execution.touches) {
      spaces[touch.space].over(touch.begin, touch.end, [&](Cell& cell) {
        check(cell.write);
        if (!touch.writes) {
          cell.reads[execution.stream] = e;
          return;
        }
        for (std::size_t& read : cell.reads) {
          check(read);
          read = kNone;
        }
        cell.write = e;
      });
    }
    clock_of[e] = clock;
    targets.ran(execution, e);
  }
  return found.take();
}

Conflicts conflicts_by_pairs(const StepProgram& program, const Unrolled& unrolled, Reuse reuse) {
  Found found(program, unrolled);
  Targets targets(program);
  const std::size_t count = unrolled.executions.size();
  // reached[e][p]: p is done before e starts, or is e.
  std::vector<std::vector<bool>> reached(count, std::vector<bool>(count));
  std::array<std::size_t, kStreams> last{};
  last.fill(kNone);
  const auto follow = [&](std::size_t e, std::size_t before) {
    if (before == kNone || reached[e][before]) return;
    for (std::size_t p = 0; p <= before; ++p) {
      if (reached[before][p]) reached[e][p] = true;
    }
  };
  for (std::size_t e = 0; e < count; ++e) {
    const Execution& execution = unrolled.executions[e];
    reached[e][e] = true;
    if (execution.instruction == program.code.size()) {
      for (const std::size_t before : last) follow(e, before);
      last.fill(e);
      targets.clear();
      continue;
    }
    follow(e, last[execution.stream]);
    targets.of(execution, [&](std::size_t target) { follow(e, target); });
    last[execution.stream] = e;
    targets.ran(execution, e);
  }
  const auto conflict = [&](const Touch& before, const Touch& after) {
    if (before.space != after.space) return false;
    if (before.begin < after.end && after.begin < before.end && (before.writes || after.writes)) {
      if (reuse == Reuse::same_bytes || before.holding == after.holding) return true;
    }
    if (reuse == Reuse::same_bytes || before.holding < 0 || after.holding < 0) return false;
    return unrolled.holdings[static_cast<std::size_t>(before.holding)].released <
           unrolled.holdings[static_cast<std::size_t>(after.holding)].acquired;
  };
  for (std::size_t e = 0; e < count; ++e) {
    for (std::size_t p = 0; p < e; ++p) {
      if (reached[e][p]) continue;
      for (const Touch& after : unrolled.executions[e].touches) {
        const auto& touches = unrolled.executions[p].touches;
        if (std::any_of(touches.begin(), touches.end(),
                        [&](const Touch& before) { return conflict(before, after); })) {
          found.add(p, e);
        }
      }
    }
  }
  return found.take();
}

}  // namespace zeroplan::test
