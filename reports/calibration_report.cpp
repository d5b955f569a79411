#include "reports/calibration_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>

#include "reports/numbers.hpp"

namespace zeroplan::reports {
namespace {

using describe::AttainedCollective;
using describe::CalibratedRates;
using describe::Figure;
using describe::KernelSizes;
using describe::MeasuredKernel;

constexpr double kGiga = 1e9;

// What a measurement is good for: four digits.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double scale = std::pow(10.0, 3 - std::floor(std::log10(std::fabs(value))));
  return std::round(value * scale) / scale;
}

Data numbers(const std::vector<double>& values, double unit = 1) {
  Data list = Data::list();
  for (const double value : values) list.add(rounded(value / unit));
  return list;
}

Data figure_data(const Figure& figure, double unit = 1) {
  Data data = Data::map().set("value", rounded(figure.value / unit)).set("source", figure.source);
  if (!figure.note.empty()) data.set("note", figure.note);
  return data;
}

void set_figure(Data& data, std::string key, const std::optional<Figure>& figure) {
  if (figure) data.set(std::move(key), figure_data(*figure));
}

// A size in whole bytes.
void set_bytes(Data& data, std::string key, const std::optional<Figure>& figure) {
  if (!figure) return;
  data.set(std::move(key),
           Data::map().set("value", static_cast<std::int64_t>(figure->value)).set("source", figure->source));
}

Data collective_data(const AttainedCollective& table) {
  Data data = Data::map()
                  .set("op", describe::collective_names()[static_cast<std::size_t>(table.collective)])
                  .set("devices", table.devices);
  if (table.type) data.set("dtype", program::name_of(*table.type));
  return data.set("first_bytes", static_cast<std::int64_t>(table.first_bytes))
      .set("busbw_gbytes_per_s", numbers(table.busbw_gbytes_per_s))
      .set("source", table.source);
}

// Without the absent ones behind the last that is there.
Data operands_data(describe::OperandTypes types) {
  std::size_t count = program::kMaxOperands;
  while (count > 0 && describe::type_at(types, count - 1) == describe::kAbsentType) --count;
  Data list = Data::list();
  for (std::size_t i = 0; i < count; ++i) {
    const auto type = describe::type_at(types, i);
    list.add(type == describe::kAbsentType ? std::string_view("none")
                                           : program::name_of(static_cast<program::DataType>(type)));
  }
  return list;
}

Data kernel_data(const MeasuredKernel& kernel) {
  const KernelSizes sizes = describe::sizes_of(kernel.kind.op);
  Data data = Data::map().set("op", program::name_of(kernel.kind.op));
  if (program::has_activation_kind(kernel.kind.op)) {
    data.set("activation", describe::activation_names()[kernel.kind.variant]);
  }
  data.set("operands", operands_data(kernel.kind.types));
  const std::vector<std::string>& axes = describe::axis_names(sizes);
  for (std::size_t i = 0; i < axes.size(); ++i) data.set(axes[i], numbers(kernel.axes[i]));
  return data.set(sizes == KernelSizes::streaming ? "gbytes_per_s" : "gflops", numbers(kernel.rates, kGiga))
      .set("spread", numbers(kernel.spread));
}

Data rates_data(const CalibratedRates& rates) {
  Data kernels = Data::list();
  for (const MeasuredKernel& kernel : rates.kernels()) kernels.add(kernel_data(kernel));
  return Data::map()
      .set("devices", rates.devices())
      .set("source", rates.source())
      .set("skew", rounded(rates.skew()))
      .set("kernels", std::move(kernels));
}

Data device_data(const describe::Device& device) {
  Data overheads = Data::map();
  set_bytes(overheads, "context_bytes", device.overheads.context_bytes);
  set_bytes(overheads, "library_workspace_bytes", device.overheads.library_workspace_bytes);
  Data data = Data::map()
                  .set("kind", "device")
                  .set("name", device.name)
                  .set("title", device.title)
                  .set("schema", "zeroplan.hardware/1")
                  .set("architecture", device.architecture)
                  .set("capacity", Data::map().set("host_memory", true))
                  .set("overheads", std::move(overheads));
  set_figure(data, "memory_measured_gbytes_per_s", device.memory_measured_gbytes_per_s);
  set_figure(data, "host_to_device_gbytes_per_s", device.host_to_device_gbytes_per_s);
  Data products = Data::list();
  for (const describe::AttainedMatmul& product : device.attained_matmul) {
    products.add(Data::map()
                     .set("dtype", product.dtype)
                     .set("shape", product.shape)
                     .set("tflops", rounded(product.tflops))
                     .set("source", product.source));
  }
  data.set("gemm_attained", std::move(products));
  Data collectives = Data::list();
  for (const AttainedCollective& table : device.attained_collectives) collectives.add(collective_data(table));
  data.set("collectives_attained", std::move(collectives));
  Data calibrated = Data::list();
  for (const CalibratedRates& rates : device.calibrated) calibrated.add(rates_data(rates));
  return data.set("calibrated", std::move(calibrated));
}

double widest_spread(const std::vector<double>& spread) {
  return spread.empty() ? 0 : *std::max_element(spread.begin(), spread.end());
}

// Slowest and fastest of each kind of kernel, by ranks at work.
Table kernels_table(const describe::Device& device) {
  Table table{
      {{"Kernel", false}, {"ranks"}, {"slowest"}, {"fastest"}, {"", false}, {"largest spread"}}, {}, {}};
  for (const CalibratedRates& rates : device.calibrated) {
    table.rules_before.push_back(table.rows.size());
    for (const MeasuredKernel& kernel : rates.kernels()) {
      if (kernel.rates.empty()) continue;
      const bool streams = describe::sizes_of(kernel.kind.op) == KernelSizes::streaming;
      const auto [low, high] = std::minmax_element(kernel.rates.begin(), kernel.rates.end());
      const auto first = static_cast<program::DataType>(describe::type_at(kernel.kind.types, 0));
      table.rows.push_back({fmt::format("{} {}", spaced(std::string(program::name_of(kernel.kind.op))),
                                        program::name_of(first)),
                            rates.devices(), Real{*low / kGiga, 2}, Real{*high / kGiga, 2},
                            std::string(streams ? "GB/s" : "GFLOPS"), Percent{widest_spread(kernel.spread)}});
    }
  }
  return table;
}

}  // namespace

Report calibration_report(const CalibrationAnswer& answer) {
  Report report;
  report.data = device_data(answer.device);
  report.rows = "gemm_attained";
  report.blocks.emplace_back(
      Paragraph{fmt::format("{}: {}, {}; {}.", answer.device.name, answer.environment.processor,
                            answer.environment.system, answer.environment.started)});
  report.blocks.emplace_back(kernels_table(answer.device));
  return report;
}

}  // namespace zeroplan::reports
