#include "planner/predict/trace.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "planner/predict/repetition.hpp"
#include "planner/predict/schedule.hpp"
#include "planner/predict/traffic.hpp"

namespace zeroplan::predict {
namespace {

using program::Instruction;
using program::Op;
using program::Phase;
using program::StepProgram;

// Clocks that know when what ran last began.
class TracingClocks : public Clocks {
 public:
  using Clocks::Clocks;

  void launch(std::size_t row, const Launch& launch) { start_ = Clocks::launch(row, launch); }

  double start() const { return start_; }

 private:
  double start_ = 0;
};

class Tracer {
 public:
  Tracer(const StepProgram& program, const StepCosts& costs, std::int64_t most_micro_batches)
      : program_(program),
        costs_(costs),
        rows_(program),
        schedule_(program, costs, rows_),
        clocks_(rows_.count()) {
    recent_.reserve(program.order.events.size());
    for (const program::Order::Event& event : program.order.events)
      recent_.emplace_back(std::size_t{event.oldest} + 1, kNotListed);
    count_micro_batches();
    read_moved();
    first_ = std::max<std::int64_t>(1, most_micro_batches - 1);
    trace_.left_out = std::max<std::int64_t>(0, trace_.micro_batches - first_ - 1);
  }

  Trace read() {
    run(0, program_.code.size(), 0, false);
    trace_.step_seconds = clocks_.latest();
    return std::move(trace_);
  }

 private:
  // Of each instruction: of a collective's whole vector or a copy, and sent by this rank.
  void read_moved() {
    moved_.resize(program_.code.size());
    for (std::size_t i = 0; i < moved_.size(); ++i) {
      const Instruction& instruction = program_.code[i];
      if (!program::is_host_copy(instruction.op) && instruction.group == program::kNoGroup) continue;
      const Traffic moved = read_traffic(program_, i, i + 1);
      const double copied = moved.to_host_bytes + moved.to_device_bytes;
      moved_[i] = {copied, copied};
      for (const TrafficEntry& entry : moved.entries) moved_[i] = {entry.bytes, entry.sent_bytes};
    }
  }

  void count_micro_batches() {
    double batches = 0;
    for_each_repeated(program_, [&](const Instruction& instruction, Phase, double times) {
      if (instruction.op == Op::load_batch) batches += times;
    });
    trace_.micro_batches = std::max<std::int64_t>(1, std::llround(batches));
  }

  void run(std::size_t begin, std::size_t end, std::int64_t layer, bool in_layers) {
    for (std::size_t i = begin; i < end; ++i) {
      const Instruction& instruction = program_.code[i];
      switch (instruction.op) {
        case Op::repeat: {
          const auto [count, first, step, close] = instruction.dims;
          for (std::int64_t k = 0; k < count; ++k) {
            const bool moves = step != 0;
            run(i + 1, static_cast<std::size_t>(close), moves ? layer + first + k * step : layer,
                in_layers || moves);
          }
          i = static_cast<std::size_t>(close);
          break;
        }
        case Op::phase:
          phase_ = static_cast<Phase>(instruction.dims[0]);
          break;
        case Op::wait_for_all:
          clocks_.wait_for_all();
          break;
        case Op::load_batch:
          ++micro_batch_;
          [[fallthrough]];
        default:
          if (program::is_memory(instruction.op)) {
            change_memory(i, in_layers ? layer : -1);
          } else if (program::is_executed(instruction.op)) {
            one(i, in_layers ? layer : -1);
          }
      }
    }
  }

  bool is_listed() const {
    return micro_batch_ < first_ || micro_batch_ == trace_.micro_batches - 1 || phase_ == Phase::step;
  }

  // What is taken one after the other at the same time is one moment, so that each is a valley or a peak.
  void change_memory(std::size_t index, std::int64_t layer) {
    const Instruction& instruction = program_.code[index];
    const program::Buffer& buffer = program_.buffers[instruction.operands[0].buffer];
    if (buffer.space != program::Space::device) return;
    const Bytes bytes = program::instances_taken(instruction.op, buffer.instances) * buffer.bytes;
    held_[static_cast<std::size_t>(buffer.category)] += bytes;
    if (!is_listed()) return;
    const double seconds = clocks_.at(rows_.of(program::Stream::compute));
    const bool goes_on =
        !trace_.memory.empty() && trace_.memory.back().seconds == seconds && takes_ == (bytes > 0);
    takes_ = bytes > 0;
    if (!goes_on) trace_.memory.emplace_back();
    trace_.memory.back() = {seconds, phase_, layer, std::max<std::int64_t>(0, micro_batch_), index, held_};
  }

  void one(std::size_t index, std::int64_t layer) {
    schedule_.run(clocks_, index, phase_);
    const std::int64_t micro_batch = std::max<std::int64_t>(0, micro_batch_);
    std::size_t own = kNotListed;
    if (is_listed() && costs_.seconds[index] > 0) {
      own = trace_.events.size();
      const Instruction& instruction = program_.code[index];
      trace_.events.push_back({program::name_of(instruction.op), schedule_.stream_of(index),
                               program_.kind_of(instruction), phase_, layer, micro_batch,
                               (instruction.flags & program::kRecomputed) != 0, clocks_.start(),
                               costs_.seconds[index], moved_[index].first, moved_[index].second});
    }
    if (!costs_.one_stream) follow_order(index, own);
  }

  // Which listed event each execution of the program's events was, the youngest first.
  void follow_order(std::size_t index, std::size_t own) {
    for (const program::Order::Wait wait : program_.order.waits_of(index)) {
      const std::size_t from = recent_[wait.event][wait.age];
      if (own != kNotListed && from != kNotListed && trace_.events[from].bytes > 0)
        trace_.flows.push_back({from, own});
    }
    const std::uint16_t event = program_.order.mark(index).signals;
    if (event == program::Order::kNoEvent) return;
    std::vector<std::size_t>& recent = recent_[event];
    std::rotate(recent.begin(), recent.end() - 1, recent.end());
    recent.front() = own;
  }

  static constexpr std::size_t kNotListed = static_cast<std::size_t>(-1);

  const StepProgram& program_;
  const StepCosts& costs_;
  Rows rows_;
  Schedule schedule_;
  TracingClocks clocks_;
  Phase phase_ = Phase::setup;
  std::int64_t micro_batch_ = -1;
  std::int64_t first_ = 1;
  program::CategoryBytes held_{};
  bool takes_ = false;                              // the last change of memory
  std::vector<std::vector<std::size_t>> recent_{};  // by event of the program's order
  std::vector<std::pair<double, double>> moved_{};  // by instruction
  Trace trace_;
};

}  // namespace

Bytes MemoryMoment::bytes() const { return std::accumulate(held.begin(), held.end(), Bytes{0}); }

Trace read_trace(const StepProgram& program, const describe::Cluster& cluster, const KernelRates& rates,
                 std::int64_t most_micro_batches) {
  if (program.states_only) return {};
  const std::optional<StepCosts> costs = step_costs(program, cluster, rates);
  if (!costs || std::any_of(costs->seconds.begin(), costs->seconds.end(),
                            [](double seconds) { return std::isnan(seconds); })) {
    return {};
  }
  return Tracer(program, *costs, most_micro_batches).read();
}

}  // namespace zeroplan::predict
