#include "planner/calibrate/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace zeroplan::calibrate {
namespace {

using describe::Figure;

constexpr double kGiga = 1e9, kTera = 1e12, kMicro = 1e-6;

enum class Waiting { included, without };  // for other ranks, in the seconds of collectives

// Probes of a kind, and the seconds of each: one list for each round.
class Series {
 public:
  Series(std::vector<Probe> probes, Waiting waiting) : waiting_(waiting) {
    measured_.reserve(probes.size());
    for (Probe& probe : probes) measured_.emplace_back(std::move(probe), Repeats{});
  }

  // Notes what the device had beside the buffers, at most.
  void run(const RunProbe& run, std::int64_t round) {
    for (auto& [probe, rounds] : measured_) {
      const ProbeRun result = run(probe, round);
      std::vector<double> seconds = mean_of(result.seconds);
      if (waiting_ == Waiting::without) {
        const std::vector<double> waited = mean_of(result.waiting);
        for (std::size_t k = 0; k < seconds.size(); ++k) seconds[k] -= waited[k];
      }
      rounds.push_back(std::move(seconds));
      workspace_bytes_ = std::max(workspace_bytes_, result.workspace_bytes);
      beyond_workspace_bytes_ =
          std::max(beyond_workspace_bytes_, result.beside_buffers_bytes - result.workspace_bytes);
    }
  }

  Bytes workspace_bytes() const { return workspace_bytes_; }
  Bytes beyond_workspace_bytes() const { return beyond_workspace_bytes_; }

  const std::vector<std::pair<Probe, Repeats>>& measured() const { return measured_; }

 private:
  std::vector<std::pair<Probe, Repeats>> measured_;
  Waiting waiting_;
  Bytes workspace_bytes_ = 0, beyond_workspace_bytes_ = 0;
};

// The rate of large operands of a kernel on the machine with the fewest ranks.
std::optional<Figure> streaming_rate(const describe::CalibratedRates& rates, program::Op op) {
  for (const describe::MeasuredKernel& kernel : rates.kernels()) {
    if (kernel.kind.op == op) return Figure{kernel.rates.back() / kGiga, rates.source(), {}, false};
  }
  return std::nullopt;
}

// What was measured stands for what the description had of the same collective with as many devices.
void take_collectives(const std::vector<describe::AttainedCollective>& measured, describe::Device& device) {
  for (const describe::AttainedCollective& table : measured) {
    std::erase_if(device.attained_collectives, [&](const describe::AttainedCollective& other) {
      return other.collective == table.collective && other.devices == table.devices && !other.type;
    });
    device.attained_collectives.push_back(table);
  }
}

describe::AttainedMatmul fastest_product(const describe::MeasuredKernel& kernel, const std::string& source) {
  const auto fastest = static_cast<std::size_t>(std::max_element(kernel.rates.begin(), kernel.rates.end()) -
                                                kernel.rates.begin());
  const auto& [rows, columns, depths] = kernel.axes;
  describe::AttainedMatmul product;
  product.dtype = program::name_of(static_cast<program::DataType>(describe::type_at(kernel.kind.types, 0)));
  product.shape =
      fmt::format("{:.0f} x {:.0f} x {:.0f}", rows[fastest / depths.size() / columns.size()],
                  columns[fastest / depths.size() % columns.size()], depths[fastest % depths.size()]);
  product.tflops = product.tflops_high = kernel.rates[fastest] / kTera;
  product.source = source;
  return product;
}

// Of each type.
std::vector<describe::AttainedMatmul> fastest_products(const describe::CalibratedRates& rates) {
  std::vector<describe::AttainedMatmul> all;
  for (const describe::MeasuredKernel& kernel : rates.kernels()) {
    if (kernel.kind.op != program::Op::matmul) continue;
    describe::AttainedMatmul product = fastest_product(kernel, rates.source());
    const auto same = std::find_if(all.begin(), all.end(), [&](const describe::AttainedMatmul& other) {
      return other.dtype == product.dtype;
    });
    if (same == all.end()) {
      all.push_back(std::move(product));
    } else if (same->tflops < product.tflops) {
      *same = std::move(product);
    }
  }
  return all;
}

}  // namespace

describe::Device new_device(std::string title, Bytes context_bytes) {
  describe::Device device;
  device.name = "calibrated-cpu";
  device.title = std::move(title);
  device.architecture = "host";
  device.capacity.from_host_memory = true;
  device.overheads.context_bytes = Figure{static_cast<double>(context_bytes),
                                          "resident set of zeroplan with its device, before the first tensor",
                                          {},
                                          false};
  return device;
}

void measure(const Scope& scope, const program::Group& ranks, const std::string& source, const RunProbe& run,
             describe::Device& device) {
  const bool has_others = ranks.size > 1;
  std::vector<Probe> of_kernels, of_collectives, of_skew;
  for (const describe::Precision precision : scope.types) {
    for (Probe& probe : kernel_probes(precision, ranks, scope.sizes)) of_kernels.push_back(std::move(probe));
    if (has_others) of_collectives.push_back(collective_probe(precision, ranks, scope.sizes));
  }
  if (has_others) of_skew.push_back(skew_probe(ranks, scope.sizes));
  Series kernels(std::move(of_kernels), Waiting::included);
  Series collectives(std::move(of_collectives), Waiting::without);
  Series skew(std::move(of_skew), Waiting::included);
  for (std::int64_t round = 1; round <= scope.rounds; ++round) {
    for (Series* series : {&kernels, &collectives, &skew}) series->run(run, round);
  }
  if (ranks.rank != 0) return;

  KernelTables tables(scope.on_gpus);
  for (const auto& [probe, rounds] : kernels.measured()) tables.add(probe, rounds);
  for (const auto& [probe, rounds] : collectives.measured()) {
    take_collectives(collective_tables(probe, rounds, source), device);
  }
  double share = 0;
  for (const auto& [probe, rounds] : skew.measured()) share = skew_of(probe, rounds);
  device.calibrated.push_back(tables.rates(ranks.size, source, share));
  std::optional<Figure>& held = device.overheads.library_workspace_bytes;
  const auto bytes = static_cast<double>(std::max(kernels.workspace_bytes(), collectives.workspace_bytes()));
  if (!held || held->value < bytes) held = Figure{bytes, source, {}, false};
  // The probe of collectives has one group.
  if (const Bytes taken = collectives.beyond_workspace_bytes(); has_others && taken > 0) {
    device.overheads.communicator_bytes = Figure{static_cast<double>(taken), source, {}, false};
  }
  std::optional<Figure>& shortest = device.shortest_kernel_us;
  const double us = tables.shortest_seconds() / kMicro;
  if (scope.on_gpus && us > 0 && (!shortest || us < shortest->value)) {
    shortest = Figure{us, source, {}, false};
  }
}

void finish(describe::Device& device) {
  const describe::CalibratedRates& rates = device.calibrated.front();
  if (const auto rate = streaming_rate(rates, program::Op::copy)) device.memory_measured_gbytes_per_s = rate;
  if (const auto rate = streaming_rate(rates, program::Op::copy_to_device)) {
    device.host_to_device_gbytes_per_s = rate;
  }
  const std::vector<describe::AttainedMatmul> products = fastest_products(rates);
  device.attained_matmul.insert(device.attained_matmul.end(), products.begin(), products.end());
}

}  // namespace zeroplan::calibrate
