#include "planner/predict/time.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "planner/predict/links.hpp"
#include "planner/predict/repetition.hpp"

namespace zeroplan::predict {

namespace {

using program::Group;
using program::Instruction;
using program::Op;
using program::Phase;
using program::StepProgram;

// What a step has to wait for: the host that issues kernels, the device's kernels, collectives of the
// data-parallel group, copies from and to host memory, and the last gather that was issued ahead.
enum Ready : std::uint8_t { host, compute, communication, copies, gathered };
constexpr std::size_t kReady = 5;
constexpr double kNever = -std::numeric_limits<double>::infinity();

// Row i: how long after each stream was ready at the start stream i is ready at the end.
class Delays {
 public:
  using Row = std::array<double, kReady>;

  Delays() {
    for (std::size_t i = 0; i < kReady; ++i) {
      rows_[i].fill(kNever);
      rows_[i][i] = 0;
    }
  }

  // `stream` waits for `other`.
  void wait(Ready stream, Ready other) {
    for (std::size_t j = 0; j < kReady; ++j) rows_[stream][j] = std::max(rows_[stream][j], rows_[other][j]);
  }
  void set(Ready stream, Ready other) { rows_[stream] = rows_[other]; }
  void spend(Ready stream, double seconds) {
    for (double& delay : rows_[stream]) delay += seconds;
  }
  void wait_for_all() {
    for (std::size_t i = 1; i < kReady; ++i) wait(host, static_cast<Ready>(i));
    for (std::size_t i = 1; i < kReady; ++i) rows_[i] = rows_[host];
  }

  // This, then `later`.
  void append(const Delays& later) {
    Delays result;
    for (std::size_t i = 0; i < kReady; ++i) {
      result.rows_[i].fill(kNever);
      for (std::size_t k = 0; k < kReady; ++k) {
        const double delay = later.rows_[i][k];
        if (delay == kNever) continue;
        for (std::size_t j = 0; j < kReady; ++j) {
          result.rows_[i][j] = std::max(result.rows_[i][j], delay + rows_[k][j]);
        }
      }
    }
    rows_ = result.rows_;
  }

  // `count` times in a row, by squaring.
  Delays power(std::int64_t count) const {
    Delays result;
    Delays square = *this;
    for (; count > 0; count /= 2) {
      if (count % 2 == 1) result.append(square);
      if (count > 1) square.append(square);
    }
    return result;
  }

  double longest() const {
    double seconds = 0;
    for (const Row& row : rows_) {
      for (const double delay : row) seconds = delay > seconds || std::isnan(delay) ? delay : seconds;
    }
    return seconds;
  }

 private:
  std::array<Row, kReady> rows_{};
};

class Timeline {
 public:
  Timeline(const StepProgram& program, const describe::Cluster& cluster, const KernelRates& rates)
      : program_(program),
        cluster_(cluster),
        rates_(rates),
        data_parallel_(place_group(program, Group::data_parallel, cluster)),
        tensor_parallel_(place_group(program, Group::tensor_parallel, cluster)) {
    const auto& link = cluster.device.host_to_device_gbytes_per_s;
    const auto& bus = cluster.device.pcie_gbytes_per_s;
    host_link_bytes_per_s_ = 1e9 * (link ? link->value : bus ? bus->value : 0);
  }

  bool is_known() const { return rates_.matmul_flops_per_s > 0 && rates_.memory_bytes_per_s > 0; }

  StepTime read() {
    for (const Instruction& instruction : program_.code) {
      switch (instruction.op) {
        case Op::phase:
          phase_ = static_cast<Phase>(instruction.dims[0]);
          if (phase_ == Phase::step) delays().wait_for_all();
          break;
        case Op::repeat:
          if (++depth_ == kDeepestRepeat) throw std::logic_error("read_time: repeats nested too deep");
          delays() = Delays();
          times_[depth_] = times_[depth_ - 1] * static_cast<double>(instruction.dims[0]);
          counts_[depth_] = instruction.dims[0];
          break;
        case Op::end_repeat: {
          const Delays body = delays().power(counts_[depth_]);
          --depth_;
          delays().append(body);
          break;
        }
        case Op::acquire:
        case Op::release:
        case Op::acquire_all:
        case Op::release_all:
        case Op::load_batch:
          break;
        default:
          one(instruction);
      }
    }
    delays().wait_for_all();
    time_.seconds = delays().longest();
    return time_;
  }

 private:
  Delays& delays() { return delays_[depth_]; }

  void one(const Instruction& instruction) {
    switch (instruction.op) {
      case Op::all_reduce:
      case Op::reduce_scatter:
      case Op::all_gather:
      case Op::broadcast:
        return collective(instruction);
      case Op::copy_to_host:
      case Op::copy_to_device:
      case Op::accumulate_host:
        return copy(instruction);
      default:
        return kernel(instruction);
    }
  }

  void kernel(const Instruction& instruction) {
    const double seconds = kernel_seconds(rates_, program_, instruction) + rates_.kernel_gap_s;
    time_.compute_seconds += times_[depth_] * seconds;
    if (phase_ == Phase::step) time_.optimizer_seconds += times_[depth_] * seconds;
    delays().spend(host, rates_.host_issue_s);
    // What adds a reduced partition follows its collective, beside the kernels of the next layer.
    const bool follows = instruction.op == Op::accumulate && phase_ == Phase::backward;
    const Ready stream = follows ? communication : compute;
    delays().wait(stream, host);
    delays().spend(stream, seconds);
  }

  void collective(const Instruction& instruction) {
    const bool gather = instruction.op == Op::all_gather;
    const program::Buffer& whole = program_.buffers[instruction.operands[gather ? 1 : 0].buffer];
    const double bytes =
        static_cast<double>(instruction.dims[0]) * static_cast<double>(program::bytes_of(whole.type));
    const bool is_data = instruction.group == Group::data_parallel;
    const double seconds =
        collective_seconds(cluster_, is_data ? data_parallel_ : tensor_parallel_, instruction.op, bytes);
    (is_data ? time_.data_parallel_seconds : time_.tensor_parallel_seconds) += times_[depth_] * seconds;
    // Issuing a collective does not slow the host down: steps that wait for their host take as long with
    // tensor parallelism as without (vtrain_runs.csv, micro-batch 1, tp 1 to 4).
    if (!is_data || phase_ == Phase::step) {
      delays().wait(compute, host);
      delays().wait(compute, communication);
      delays().spend(compute, seconds);
      delays().wait(communication, compute);
      return;
    }
    delays().wait(communication, host);
    delays().wait(communication, compute);
    if (gather) {
      // Issued ahead, the kernels that follow need the gather before it; otherwise this one.
      const bool ahead = instruction.operands[1].layer_offset != 0;
      delays().wait(communication, copies);
      if (ahead) delays().wait(compute, gathered);
      delays().spend(communication, seconds);
      delays().set(gathered, communication);
      if (!ahead) delays().wait(compute, communication);
      return;
    }
    delays().spend(communication, seconds);
  }

  void copy(const Instruction& instruction) {
    const program::Buffer& source = program_.buffers[instruction.operands[0].buffer];
    const double bytes =
        static_cast<double>(instruction.dims[0]) * static_cast<double>(program::bytes_of(source.type));
    const double seconds = host_link_bytes_per_s_ > 0 ? bytes / host_link_bytes_per_s_ : 0;
    time_.host_copy_seconds += times_[depth_] * seconds;
    delays().wait(copies, compute);
    if (instruction.op == Op::accumulate_host) delays().wait(copies, communication);
    delays().spend(copies, seconds);
    if (phase_ == Phase::step) delays().wait(compute, copies);
  }

  const StepProgram& program_;
  const describe::Cluster& cluster_;
  const KernelRates& rates_;
  Placement data_parallel_, tensor_parallel_;
  double host_link_bytes_per_s_ = 0;
  Phase phase_ = Phase::setup;
  std::array<Delays, kDeepestRepeat> delays_;
  std::array<double, kDeepestRepeat> times_{1};
  std::array<std::int64_t, kDeepestRepeat> counts_{1};
  std::size_t depth_ = 0;
  StepTime time_;
};

}  // namespace

StepTime read_time(const StepProgram& program, const describe::Cluster& cluster, const KernelRates& rates) {
  Timeline timeline(program, cluster, rates);
  if (!timeline.is_known() || program.states_only) return {};
  const StepTime time = timeline.read();
  return std::isnan(time.seconds) ? StepTime{}
                                  : time;  // links that are not described take no number of seconds
}

}  // namespace zeroplan::predict
