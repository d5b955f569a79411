#include "reports/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "planner/percentile.hpp"
#include "reports/device_memory.hpp"
#include "reports/reserved_memory.hpp"
#include "reports/run_checks.hpp"

namespace zeroplan::reports {
namespace {

using predict::Prediction;
using program::GroupKind;
using program::Measurement;
using program::Op;
using program::RankMeasurement;
using Kind = ComparedFigure::Kind;

constexpr double kTera = 1e12;
constexpr double kProcessTolerance = 0.02;
constexpr double kFirstLossTolerance = 0.25;                              // of itself
constexpr double kProcessToleranceBytes = 8 * static_cast<double>(kMiB);  // a rank

Bytes sum(const program::CategoryBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), Bytes{0});
}

// Of the rank that is furthest from the prediction.
template <class Value>
double furthest(const Measurement& measurement, double predicted, const Value& value) {
  double result = predicted;
  bool first = true;
  for (const RankMeasurement& rank : measurement.of_rank) {
    const double measured = static_cast<double>(value(rank));
    if (first || std::abs(measured - predicted) > std::abs(result - predicted)) result = measured;
    first = false;
  }
  return result;
}

class Rows {
 public:
  Rows(const Prediction& prediction, const Measurement& measurement, Comparison& comparison)
      : prediction_(prediction), measurement_(measurement), comparison_(comparison) {}

  // What was written is compared, of the rank that wrote most: of padded partitions the last ranks own less.
  void memory() {
    const ReservedBytes reserved = reserved_at_peak(prediction_);
    const auto most_written = [&](auto&& bytes_of) {
      Bytes most = 0;
      for (const RankMeasurement& rank : measurement_.of_rank) most = std::max<Bytes>(most, bytes_of(rank));
      return static_cast<double>(most);
    };
    const auto row = [&](std::string key, std::string title, Bytes predicted, double measured) {
      if (predicted == 0 && measured == 0) return;
      comparison_.figures.push_back(
          {std::move(key), std::move(title), Kind::bytes, static_cast<double>(predicted), measured});
    };
    for (std::size_t i = 0; i < program::kCategories; ++i) {
      const std::string name(program::name_of(static_cast<program::Category>(i)));
      row("memory." + name, name, prediction_.memory().at_peak[i] - reserved.device[i],
          most_written([i](const RankMeasurement& rank) { return rank.written_at_device_peak[i]; }));
    }
    row("memory.peak", "peak of the buffers", prediction_.memory().peak - sum(reserved.device),
        most_written([](const RankMeasurement& rank) { return sum(rank.written_at_device_peak); }));
    row("memory.host", "host memory of the buffers", prediction_.memory().host_peak - sum(reserved.host),
        most_written([](const RankMeasurement& rank) { return sum(rank.written_at_host_peak); }));
    reserved_bytes_ = sum(reserved.device) + sum(reserved.host);
    process();
    const predict::ProgramPoint& place = prediction_.memory().place;
    const std::string predicted =
        position_text(prediction_.program(), place.phase, place.layer, place.serves);
    std::string measured = predicted;
    for (const RankMeasurement& rank : measurement_.of_rank) {
      const program::Position& at = rank.peak_position;
      const std::string text = position_text(prediction_.program(), at.phase, at.layer,
                                             predict::served_by(prediction_.program(), at.instruction));
      if (text != predicted) measured = text;
    }
    comparison_.texts.push_back({"memory.peak_at", "peak at", predicted, measured});
  }

  void traffic() {
    for (std::size_t i = 0; i < prediction_.program().groups.size(); ++i) {
      const program::Group& group = prediction_.program().groups[i];
      for (const Op op : program::kCollectiveOps) {
        double calls = 0;
        double bytes = 0;
        for (const predict::TrafficEntry& entry : prediction_.traffic().entries) {
          if (entry.group != group.kind || entry.collective != op) continue;
          calls += entry.calls;
          bytes += entry.bytes;
        }
        const auto count = [i, op](const RankMeasurement& rank) {
          return rank.collectives[i][program::collective_index(op)];
        };
        const std::string key = fmt::format("{}.{}", program::name_of(group.kind), program::name_of(op));
        const std::string title = fmt::format("{} {}", program::name_of(group.kind), program::name_of(op));
        figure("calls." + key, title, Kind::count, calls,
               [&](const RankMeasurement& rank) { return count(rank).calls; });
        figure("bytes." + key, title, Kind::bytes, bytes,
               [&](const RankMeasurement& rank) { return count(rank).bytes; });
        moved(i, op, bytes);
      }
    }
    // Of the rank that copies most: the last ones own less of padded partitions.
    host_copies("bytes.device_to_host", "device to host", prediction_.traffic().to_host_bytes,
                &RankMeasurement::to_host_bytes);
    host_copies("bytes.host_to_device", "host to device", prediction_.traffic().to_device_bytes,
                &RankMeasurement::to_device_bytes);
  }

  // Of the repeated steps, the one that is furthest off.
  void one_rank() {
    const program::OneRank& one = measurement_.one_rank;
    const auto row = [&](const std::string& key, const std::string& title, double tolerance, bool of_skipped,
                         auto&& value) {
      ComparedFigure worst;
      double furthest_share = -1;
      for (const program::StepMeasurement& alone : one.steps) {
        // A long run's log does not keep every step.
        const auto same = std::find_if(measurement_.steps.begin(), measurement_.steps.end(),
                                       [&](const auto& step) { return step.step == alone.step; });
        if (same == measurement_.steps.end()) continue;
        const program::StepMeasurement& ranks = *same;
        // Where gradients overflow depends on their rounding; from there on the two are at different states.
        if (alone.skipped != ranks.skipped) break;
        if (alone.skipped && !of_skipped) continue;
        ComparedFigure figure{"one_rank." + key,
                              fmt::format("{} of step {}, as on one rank", title, ranks.step), Kind::real,
                              value(alone), value(ranks)};
        figure.tolerance_below = figure.tolerance_above = tolerance * std::abs(figure.predicted);
        // What is not a number is within no tolerance.
        const double off = std::isnan(figure.difference()) ? std::numeric_limits<double>::infinity()
                                                           : std::abs(figure.difference());
        const double share = off / std::max(std::abs(figure.predicted), 1e-30);
        if (share <= furthest_share) continue;
        furthest_share = share;
        worst = std::move(figure);
      }
      if (furthest_share >= 0) comparison_.figures.push_back(std::move(worst));
    };
    row("loss", "loss", one.loss_tolerance, true,
        [](const program::StepMeasurement& step) { return step.loss; });
    // The norm of gradients that overflowed says nothing.
    row("gradient_norm", "gradient norm", one.norm_tolerance, false,
        [](const program::StepMeasurement& step) { return step.gradient_norm; });
  }

  // Weights of deviation 0.02 tell no token from another: a first loss is about ln(vocabulary), and above it by
  // half the variance of the logits, which are sums over `hidden` normed values. A table that is the head too knows the
  // token that was read: its logit is up to 0.02 x hidden, which counts where there are few others.
  void first_loss() {
    const program::DrawnWeights& drawn = measurement_.drawn;
    if (drawn.vocabulary < 2 || measurement_.steps.empty()) return;
    const double expected = std::log(static_cast<double>(drawn.vocabulary));
    constexpr double kDeviation = 0.02;
    const auto hidden = static_cast<double>(drawn.hidden);
    double spread = kDeviation * kDeviation / 2 * hidden;
    const std::vector<program::TensorPlacement>& tensors = prediction_.program().tensors;
    const bool is_tied = std::none_of(tensors.begin(), tensors.end(),
                                      [](const auto& tensor) { return tensor.name == "head.weight"; });
    if (is_tied && drawn.vocabulary < drawn.hidden) {
      spread += std::log1p(std::expm1(kDeviation * hidden) / static_cast<double>(drawn.vocabulary));
    }
    comparison_.figures.push_back({"training.first_loss", "first loss", Kind::real, expected,
                                   measurement_.steps[0].loss, kFirstLossTolerance * expected,
                                   kFirstLossTolerance * expected + spread});
  }

  void flops() {
    figure("flops", "matrix products", Kind::flops, prediction_.work().hardware,
           [](const RankMeasurement& rank) { return rank.product_flops; });
    comparison_.figures.back().tolerance_below = prediction_.work().attention / 2;
  }

 private:
  // What is neither predicted nor there is no row.
  template <class Value>
  void figure(std::string key, std::string title, Kind kind, double predicted, const Value& value) {
    const double measured = furthest(measurement_, predicted, value);
    if (predicted == 0 && measured == 0) return;
    comparison_.figures.push_back({std::move(key), std::move(title), kind, predicted, measured});
  }

  void host_copies(std::string key, std::string title, double predicted, Bytes RankMeasurement::*bytes) {
    Bytes most = 0;
    for (const RankMeasurement& rank : measurement_.of_rank) most = std::max(most, rank.*bytes);
    if (predicted == 0 && most == 0) return;
    comparison_.figures.push_back(
        {std::move(key), std::move(title), Kind::bytes, predicted, static_cast<double>(most)});
  }

  // Per rank, on average: which rank carries how much of a vector whose parts are not equal is the
  // communicator's affair, the sum over ranks is not. Both sides are one division of whole numbers.
  void moved(std::size_t index, Op op, double bytes) {
    const program::Group& group = prediction_.program().groups[index];
    const auto n = static_cast<double>(group.size);
    Bytes carried = 0;
    for (const RankMeasurement& rank : measurement_.of_rank) {
      carried += rank.moved[index][program::collective_index(op)];
    }
    const double predicted = program::sent_over_ring(op, bytes, n);
    const double measured = static_cast<double>(carried) / static_cast<double>(measurement_.of_rank.size());
    if (predicted == 0 && measured == 0) return;
    comparison_.figures.push_back(
        {fmt::format("moved.{}.{}", program::name_of(group.kind), program::name_of(op)),
         fmt::format("moved by this {}", program::name_of(op)), Kind::bytes, predicted, measured});
  }

  // Ranks that are threads share a process: its growth is that of all of them.
  void process() {
    struct Process {
      double predicted = 0, measured = 0;
      double ranks = 0;
      double beyond_peak = 0;  // what allocators took from the system beyond what is held at the peak
    };
    std::map<std::int64_t, Process> processes;
    for (const RankMeasurement& rank : measurement_.of_rank) {
      Process& process = processes[rank.process];
      process.predicted +=
          static_cast<double>(prediction_.memory().peak + prediction_.memory().host_peak - reserved_bytes_);
      process.beyond_peak += static_cast<double>(rank.device_block_bytes - rank.device_peak_bytes) +
                             static_cast<double>(rank.host_block_bytes - rank.host_peak_bytes);
      process.measured = std::max(process.measured, static_cast<double>(rank.process_growth_bytes));
      ++process.ranks;
    }
    const Process* furthest_off = nullptr;
    for (const auto& [number, process] : processes) {
      if (process.measured <= 0) return;  // the system does not say
      if (furthest_off == nullptr || std::abs(process.measured - process.predicted) >
                                         std::abs(furthest_off->measured - furthest_off->predicted)) {
        furthest_off = &process;
      }
    }
    if (furthest_off == nullptr) return;
    const double tolerance =
        std::max(kProcessTolerance * furthest_off->predicted, kProcessToleranceBytes * furthest_off->ranks);
    // Plans without contiguous memory: an ordinary allocator keeps segments whose pieces do not fit what comes
    // next (caching_allocator.hpp). It says how much it took; none of it need be in use.
    comparison_.figures.push_back({"memory.process", "growth of a process", Kind::bytes,
                                   furthest_off->predicted, furthest_off->measured, tolerance,
                                   tolerance + furthest_off->beyond_peak});
  }

  const Prediction& prediction_;
  const Measurement& measurement_;
  Comparison& comparison_;
  Bytes reserved_bytes_ = 0;  // held by the engine only
};

}  // namespace

bool Comparison::ok() const {
  const auto is_ok = [](const auto& row) { return row.ok(); };
  return std::all_of(figures.begin(), figures.end(), is_ok) && std::all_of(texts.begin(), texts.end(), is_ok);
}

Comparison compare(const Prediction& prediction, const Measurement& measurement) {
  Comparison comparison;
  Rows rows(prediction, measurement, comparison);
  rows.memory();
  if (auto total = device_total(prediction, measurement)) comparison.figures.push_back(*std::move(total));
  rows.traffic();
  rows.flops();
  rows.first_loss();
  rows.one_rank();
  for (ComparedText& check : check_run(measurement)) comparison.texts.push_back(std::move(check));
  return comparison;
}

std::string position_text(const program::StepProgram& program, program::Phase phase, std::int64_t layer,
                          std::size_t serves) {
  std::string text(program::name_of(phase));
  if (layer >= 0) text += fmt::format(", layer {}", layer);
  return text + fmt::format(", before {}", program::name_of(program.code[serves].op));
}

std::vector<ComparedTime> compare_times(const Prediction& prediction, const Measurement& measurement) {
  const predict::StepTime& time = prediction.time;
  std::vector<ComparedTime> rows;
  if (!time.is_known()) return rows;
  const double all_steps = measurement.steps.measured_seconds();
  const auto steps = static_cast<double>(measurement.steps.measured());
  if (steps == 0) return rows;
  double kernels = 0, copies = 0, waiting = 0;
  std::array<double, program::kGroupKinds> of_family{};
  for (const program::InstructionTime& one : measurement.times) {
    double& sum = one.group                       ? of_family[static_cast<std::size_t>(family_of(*one.group))]
                  : program::is_host_copy(one.op) ? copies
                                                  : kernels;
    sum += (one.seconds - one.waiting_seconds) / steps;
    waiting += one.waiting_seconds / steps;
  }
  const auto seconds = [&](std::string key, std::string title, double predicted, double measured) {
    if (predicted == 0 && measured == 0) return;
    rows.push_back({"time." + std::move(key), std::move(title), false, predicted, measured});
  };
  const double data = of_family[static_cast<std::size_t>(GroupKind::data_parallel)];
  const double tensor = of_family[static_cast<std::size_t>(GroupKind::tensor_parallel)];
  seconds("step", "step", time.seconds, measured_speed(prediction, measurement).step_seconds);
  seconds("compute", "kernels", time.compute_seconds, kernels);
  seconds("data_parallel", "data-parallel traffic", time.data_parallel_seconds, data);
  seconds("tensor_parallel", "tensor-parallel traffic", time.tensor_parallel_seconds, tensor);
  seconds("waiting", "waiting for other ranks", time.waiting_seconds, waiting);
  seconds("host_copies", "host copies", time.host_copy_seconds, copies);
  const double in_collectives = data + tensor + waiting;
  if (in_collectives > 0) {
    using predict::ExposedPart;
    const double exposed =
        time.exposed(ExposedPart::data_parallel) + time.exposed(ExposedPart::tensor_parallel);
    const double waited = measurement.waited_for_traffic_seconds;
    rows.push_back({"time.exposed_share", "share that waits for traffic", true, exposed / time.seconds,
                    waited / all_steps});
    const double traffic = time.data_parallel_seconds + time.tensor_parallel_seconds + time.waiting_seconds;
    rows.push_back({"time.hidden_share", "traffic beside kernels, of all", true,
                    traffic > 0 ? std::max(0.0, 1 - exposed / traffic) : 0,
                    std::max(0.0, 1 - waited / (in_collectives * steps))});
  }
  return rows;
}

MeasuredSpeed measured_speed(const Prediction& prediction, const Measurement& measurement) {
  std::vector<double> seconds;
  for (const program::StepMeasurement& step : measurement.steps) {
    if (!step.warm_up) seconds.push_back(step.seconds);
  }
  MeasuredSpeed speed;
  if (seconds.empty()) return speed;
  speed.step_seconds = percentile(seconds, 0.5);
  speed.fastest_seconds = measurement.steps.fastest_seconds();
  speed.slowest_seconds = measurement.steps.slowest_seconds();
  speed.tokens_per_second = static_cast<double>(prediction.program().tokens_per_step) / speed.step_seconds;
  speed.model_tflops = prediction.work().model / speed.step_seconds / kTera;
  Flops products = 0;  // of the mean rank
  for (const RankMeasurement& rank : measurement.of_rank) {
    products += rank.product_flops / static_cast<double>(measurement.of_rank.size());
  }
  speed.hardware_tflops = products / speed.step_seconds / kTera;
  return speed;
}

}  // namespace zeroplan::reports
