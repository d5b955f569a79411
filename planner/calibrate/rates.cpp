#include "planner/calibrate/rates.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "planner/percentile.hpp"
#include "planner/predict/measured_kernels.hpp"
#include "planner/predict/traffic.hpp"

namespace zeroplan::calibrate {
namespace {

using describe::KernelKind;
using describe::KernelSizes;
using describe::MeasuredKernel;
using program::Instruction;
using program::Op;

// Sizes that differ by less are one point of a table.
constexpr double kSameSize = 1.3;
constexpr double kGiga = 1e9;

Typical typical_of_instruction(const Repeats& repeats, std::size_t index) {
  std::vector<double> seconds;
  seconds.reserve(repeats.size());
  for (const std::vector<double>& repeat : repeats) {
    if (repeat[index] > 0) seconds.push_back(repeat[index]);
  }
  return typical_of(seconds);
}

}  // namespace

Typical typical_of(const std::vector<double>& values) {
  if (values.empty()) return {};
  const double median = percentile(values, 0.5);
  return {median, (percentile(values, 0.75) - percentile(values, 0.25)) / 2 / median};
}

std::vector<double> mean_of(const Repeats& repeats) {
  std::vector<double> mean(repeats.front().size());
  for (const std::vector<double>& repeat : repeats) {
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += repeat[i] / static_cast<double>(repeats.size());
  }
  return mean;
}

void KernelTables::add(const Probe& probe, const Repeats& repeats) {
  for (std::size_t i = 0; i < probe.program.code.size(); ++i) {
    const Instruction& instruction = probe.program.code[i];
    const bool streams = describe::sizes_of(instruction.op) == KernelSizes::streaming;
    if (!program::is_executed_by_device(instruction.op) || streams == probe.is_grid) continue;
    if (of_gpu_ && instruction.stream == program::Stream::host) continue;
    const Typical seconds = typical_of_instruction(repeats, i);
    if (seconds.value <= 0) continue;
    if (shortest_seconds_ == 0 || seconds.value < shortest_seconds_) shortest_seconds_ = seconds.value;
    const double work = predict::kernel_work(probe.program, instruction);
    (streams ? streaming_ : grid_)
        .push_back({predict::kind_of(probe.program, instruction), predict::kernel_sizes(instruction, work),
                    work / seconds.value, seconds.spread});
  }
}

describe::CalibratedRates KernelTables::rates(std::int64_t devices, std::string source, double skew) const {
  std::map<KernelKind, MeasuredKernel> kernels;
  for (const Sample& sample : grid_) {
    MeasuredKernel& kernel = kernels[sample.kind];
    for (std::size_t i = 0; i < describe::axis_names(describe::sizes_of(sample.kind.op)).size(); ++i) {
      std::vector<double>& axis = kernel.axes[i];
      if (std::find(axis.begin(), axis.end(), sample.sizes[i]) == axis.end()) axis.push_back(sample.sizes[i]);
    }
    // Probes walk their grids with the last axis moving fastest, each axis upwards.
    kernel.rates.push_back(sample.rate);
    kernel.spread.push_back(sample.spread);
  }
  std::vector<Sample> sorted = streaming_;
  std::sort(sorted.begin(), sorted.end(),
            [](const Sample& a, const Sample& b) { return a.sizes[0] < b.sizes[0]; });
  std::map<KernelKind, std::vector<std::vector<Sample>>> points;
  for (const Sample& sample : sorted) {
    std::vector<std::vector<Sample>>& list = points[sample.kind];
    if (list.empty() || sample.sizes[0] > kSameSize * list.back().front().sizes[0]) list.emplace_back();
    list.back().push_back(sample);
  }
  for (const auto& [kind, list] : points) {
    MeasuredKernel& kernel = kernels[kind];
    for (const std::vector<Sample>& point : list) {
      double size = 0, rate = 0, spread = 0;
      for (const Sample& sample : point) {
        size += std::log(sample.sizes[0]);
        rate += std::log(sample.rate);
        spread = std::max(spread, sample.spread);
      }
      const auto count = static_cast<double>(point.size());
      kernel.axes[0].push_back(std::exp(size / count));
      kernel.rates.push_back(std::exp(rate / count));
      kernel.spread.push_back(spread);
    }
  }
  std::vector<MeasuredKernel> result;
  result.reserve(kernels.size());
  for (auto& [kind, kernel] : kernels) {
    kernel.kind = kind;
    result.push_back(std::move(kernel));
  }
  return {devices, std::move(result), std::move(source), skew};
}

std::vector<describe::AttainedCollective> collective_tables(const Probe& probe, const Repeats& repeats,
                                                            const std::string& source) {
  std::map<Op, describe::AttainedCollective> tables;
  const auto ranks = static_cast<double>(probe.program.ranks);
  for (std::size_t i = 0; i < probe.program.code.size(); ++i) {
    const Instruction& instruction = probe.program.code[i];
    if (instruction.group == program::kNoGroup) continue;
    const Typical seconds = typical_of_instruction(repeats, i);
    const program::Buffer& whole = predict::whole_buffer(probe.program, instruction);
    const double bytes =
        static_cast<double>(instruction.dims[0]) * static_cast<double>(program::bytes_of(whole.type));
    describe::AttainedCollective& table = tables[instruction.op];
    if (table.busbw_gbytes_per_s.empty()) {
      table.collective = describe::collective_of(instruction.op);
      table.devices = probe.program.ranks;
      table.type = whole.type;
      table.first_bytes = bytes;
      table.source = source;
    }
    table.busbw_gbytes_per_s.push_back(describe::ring_share(table.collective, ranks) * bytes / seconds.value /
                                       kGiga);
  }
  std::vector<describe::AttainedCollective> result;
  result.reserve(tables.size());
  for (auto& [op, table] : tables) result.push_back(std::move(table));
  return result;
}

double skew_of(const Probe& probe, const Repeats& repeats) {
  double computed = 0, met = 0, meetings = 0;
  double fastest = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < probe.program.code.size(); ++i) {
    const Instruction& instruction = probe.program.code[i];
    for (const std::vector<double>& repeat : repeats) {
      if (instruction.op == Op::matmul) computed += repeat[i];
      if (instruction.group == program::kNoGroup) continue;
      met += repeat[i];
      ++meetings;
      fastest = std::min(fastest, repeat[i]);
    }
  }
  return computed > 0 ? std::max(0.0, met - meetings * fastest) / computed : 0;
}

}  // namespace zeroplan::calibrate
