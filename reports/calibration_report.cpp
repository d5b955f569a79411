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

Data figure_of(const Data& value, const Figure& figure) {
  Data data = Data::map().set("value", value).set("source", figure.source);
  if (!figure.note.empty()) data.set("note", figure.note);
  if (figure.assumed) data.set("assumed", true);
  return data;
}

void set_figure(Data& data, std::string key, const std::optional<Figure>& figure) {
  if (figure) data.set(std::move(key), figure_of(rounded(figure->value), *figure));
}

// A size in whole bytes.
void set_bytes(Data& data, std::string key, const std::optional<Figure>& figure) {
  if (figure) data.set(std::move(key), figure_of(static_cast<std::int64_t>(figure->value), *figure));
}

Data collective_data(const AttainedCollective& table) {
  Data data = Data::map()
                  .set("op", describe::collective_names()[static_cast<std::size_t>(table.collective)])
                  .set("devices", table.devices);
  if (table.nodes > 1) data.set("nodes", table.nodes);
  if (table.type) data.set("dtype", program::name_of(*table.type));
  data.set("first_bytes", static_cast<std::int64_t>(table.first_bytes))
      .set("busbw_gbytes_per_s", numbers(table.busbw_gbytes_per_s))
      .set("source", table.source);
  if (!table.note.empty()) data.set("note", table.note);
  if (table.assumed) data.set("assumed", true);
  return data;
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

Data capacity_data(const describe::Capacity& capacity) {
  if (capacity.from_host_memory) return Data::map().set("host_memory", true);
  Data data = Data::map();
  set_bytes(data, "brochure_bytes", capacity.brochure_bytes);
  set_bytes(data, "nvml_bytes", capacity.nvml_bytes);
  set_bytes(data, "cuda_bytes", capacity.cuda_bytes);
  set_bytes(data, "driver_reserved_bytes", capacity.driver_reserved_bytes);
  return data;
}

Data overheads_data(const describe::Overheads& overheads) {
  Data data = Data::map();
  set_bytes(data, "context_bytes", overheads.context_bytes);
  set_bytes(data, "library_workspace_bytes", overheads.library_workspace_bytes);
  set_bytes(data, "communicator_bytes", overheads.communicator_bytes);
  set_bytes(data, "allocator_round_bytes", overheads.allocator_round_bytes);
  return data;
}

Data interval(double low, double high) {
  if (low == high) return rounded(low);
  return Data::list().add(rounded(low)).add(rounded(high));
}

Data product_data(const describe::AttainedMatmul& product) {
  Data data = Data::map()
                  .set("dtype", product.dtype)
                  .set("shape", product.shape)
                  .set("tflops", interval(product.tflops, product.tflops_high));
  if (product.fraction_of_peak) {
    data.set("fraction_of_peak", interval(*product.fraction_of_peak,
                                          product.fraction_of_peak_high.value_or(*product.fraction_of_peak)));
  }
  if (product.used) data.set("used", true);
  data.set("source", product.source);
  if (!product.note.empty()) data.set("note", product.note);
  return data;
}

Data attention_data(const describe::AttainedAttention& attention) {
  Data data = Data::map()
                  .set("kernel", attention.kernel)
                  .set("what", attention.what)
                  .set("tflops", numbers(attention.tflops));
  if (attention.head_dim) data.set("head_dim", *attention.head_dim);
  if (!attention.lengths.empty()) {
    Data lengths = Data::list();
    for (const double length : attention.lengths) lengths.add(static_cast<std::int64_t>(length));
    data.set("lengths", std::move(lengths));
  }
  if (attention.used) data.set("used", true);
  return data.set("source", attention.source);
}

template <class Value, class ToData>
Data list_data(const std::vector<Value>& values, const ToData& to_data) {
  Data list = Data::list();
  for (const Value& value : values) list.add(to_data(value));
  return list;
}

Data device_data(const describe::Device& device) {
  Data data = Data::map()
                  .set("kind", "device")
                  .set("name", device.name)
                  .set("title", device.title)
                  .set("schema", "zeroplan.hardware/1")
                  .set("architecture", device.architecture)
                  .set("capacity", capacity_data(device.capacity))
                  .set("overheads", overheads_data(device.overheads));
  set_figure(data, "compute_capability", device.compute_capability);
  set_figure(data, "multiprocessors", device.multiprocessors);
  set_figure(data, "peak_fp32_tflops", device.peak_fp32_tflops);
  set_figure(data, "peak_tf32_tflops", device.peak_tf32_tflops);
  set_figure(data, "peak_fp16_tflops", device.peak_fp16_tflops);
  set_figure(data, "peak_bf16_tflops", device.peak_bf16_tflops);
  set_figure(data, "peak_fp8_tflops", device.peak_fp8_tflops);
  set_figure(data, "memory_gbytes_per_s", device.memory_gbytes_per_s);
  set_figure(data, "memory_measured_gbytes_per_s", device.memory_measured_gbytes_per_s);
  set_figure(data, "shortest_kernel_us", device.shortest_kernel_us);
  set_figure(data, "nvlink_links", device.nvlink_links);
  set_figure(data, "nvlink_gbytes_per_s", device.nvlink_gbytes_per_s);
  set_figure(data, "nccl_link_gbytes_per_s", device.nccl_link_gbytes_per_s);
  set_figure(data, "pcie_gbytes_per_s", device.pcie_gbytes_per_s);
  set_figure(data, "host_to_device_gbytes_per_s", device.host_to_device_gbytes_per_s);
  data.set("gemm_attained", list_data(device.attained_matmul, product_data));
  if (!device.attained_attention.empty()) {
    data.set("attention_attained", list_data(device.attained_attention, attention_data));
  }
  data.set("collectives_attained", list_data(device.attained_collectives, collective_data));
  data.set("calibrated", list_data(device.calibrated, rates_data));
  if (!device.usual_node.empty()) {
    data.set("usual_node",
             Data::map().set("name", device.usual_node).set("reason", device.usual_node_reason));
  }
  if (!device.note.empty()) data.set("note", device.note);
  return data;
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
  if (!answer.device.note.empty()) report.blocks.emplace_back(Paragraph{answer.device.note});
  report.blocks.emplace_back(kernels_table(answer.device));
  return report;
}

}  // namespace zeroplan::reports
