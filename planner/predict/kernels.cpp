#include "planner/predict/kernels.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "planner/instructions/table.hpp"
#include "planner/predict/measured_kernels.hpp"
#include "planner/predict/work.hpp"

namespace zeroplan::predict {

namespace {

using program::Cost;
using program::Instruction;
using program::StepProgram;

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;
constexpr double kMicro = 1e-6;

// To fp32, scale, mask, softmax, to 16 bits; backward as many. Each moves about what the fused one does.
constexpr double kUnfusedSoftmaxKernels = 5;

using describe::Device;
using describe::DeviceArchitecture;

// What heads of this width reach of the limit at this length.
double attention_shape(const DeviceArchitecture& facts, double length, double width) {
  return length / (length + facts.attention_half_length.value) * width /
         (width + facts.attention_half_head.value);
}

double value(const std::optional<describe::Figure>& figure) { return figure ? figure->value : 0; }

// Of the peak, what the forward of fused attention tends to for long sequences and wide heads: the median of
// what the device's measurements say, or the architecture's.
double attention_fraction(const Device& device, const DeviceArchitecture& facts) {
  const double peak = kTera * value(device.peak_fp16_tflops);
  std::vector<double> limits;
  limits.reserve(32);
  for (const describe::AttainedAttention& entry : device.attained_attention) {
    if (!entry.used || !(peak > 0)) continue;
    const auto width = static_cast<double>(*entry.head_dim);
    for (std::size_t i = 0; i < entry.lengths.size(); ++i) {
      limits.push_back(kTera * entry.tflops[i] / attention_shape(facts, entry.lengths[i], width) / peak);
    }
  }
  if (limits.empty()) return facts.attention_fraction.value;
  std::sort(limits.begin(), limits.end());
  const std::size_t half = limits.size() / 2;
  return limits.size() % 2 == 1 ? limits[half] : (limits[half - 1] + limits[half]) / 2;
}

// Of the peak, what large 16-bit products reach: the best of the device's measurements, or the architecture's.
double matmul_fraction(const Device& device, const DeviceArchitecture& facts) {
  double best = 0;
  for (const describe::AttainedMatmul& entry : device.attained_matmul) {
    if (entry.used && entry.fraction_of_peak) best = std::max(best, *entry.fraction_of_peak);
  }
  return best > 0 ? best : facts.matmul_fraction.value;
}

double bytes_of(const StepProgram& program, const Instruction& instruction, std::size_t operand) {
  const program::BufferId buffer = instruction.operands[operand].buffer;
  if (buffer == program::kNoBuffer) return 0;
  return static_cast<double>(program::bytes_of(program.buffers[buffer].type));
}

// std::ceil of what fits 64 bits; a call of the library for each tile would cost as much as the rest.
double rounded_up(double value) {
  const auto whole = static_cast<double>(static_cast<std::int64_t>(value));
  return whole < value ? whole + 1 : whole;
}

bool is_multiple(double size, std::int64_t of) { return static_cast<std::int64_t>(size) % of == 0; }

// `batch` products of C[m,n] = A[m,k] B[k,n], which move `bytes` in all.
double product_seconds(const KernelRates& rates, double batch, double m, double n, double k, double bytes) {
  double best = 0;
  double flops_per_s = rates.matmul_flops_per_s;
  if (rates.unaligned_flops_per_s > 0) {
    const auto size = static_cast<std::int64_t>(rates.facts->aligned_size->value);
    const bool is_aligned = is_multiple(m, size) && is_multiple(n, size) && is_multiple(k, size);
    if (!is_aligned) flops_per_s = std::min(flops_per_s, rates.unaligned_flops_per_s);
  }
  const double overhead = rates.facts->tile_overhead_depth.value;
  for (const describe::Tile& tile : rates.facts->tiles) {
    const double tiles = batch * rounded_up(m / tile.rows) * rounded_up(n / tile.columns);
    const double waves = rounded_up(tiles / rates.multiprocessors);
    const double flops = waves * rates.multiprocessors * tile.rows * tile.columns * 2 * (k + overhead);
    const double seconds = flops / (flops_per_s * tile.efficiency);
    if (best == 0 || seconds < best) best = seconds;
  }
  return std::max(best, bytes / rates.memory_bytes_per_s);
}

// Attention with its scores in memory: of each head, products with the scores as result and with them as
// factor.
double attention_product_seconds(const KernelRates& rates, const StepProgram& program,
                                 const Instruction& instruction) {
  const auto [sequences, length, heads, head_dim] = instruction.dims;
  const double batch = static_cast<double>(sequences * heads);
  const auto s = static_cast<double>(length);
  const auto d = static_cast<double>(head_dim);
  const double element = bytes_of(program, instruction, 0);
  const double bytes = batch * (s * s + 2 * s * d) * element;
  const double to_scores = product_seconds(rates, batch, s, s, d, bytes);
  const double from_scores = product_seconds(rates, batch, s, d, s, bytes);
  const program::Products& products = program::row_of(instruction.op).products;
  const bool capped = program.constants.attention_soft_cap > 0;
  return (products.to_scores + (capped ? products.to_capped_scores : 0)) * to_scores +
         products.from_scores * from_scores;
}

// The mean of the program's layers. A query of a windowed layer goes over as many keys as one of a shorter
// sequence, and fills the kernel's pipeline no better.
double fused_attention_seconds(const KernelRates& rates, const StepProgram& program,
                               const Instruction& instruction) {
  const auto length = static_cast<double>(instruction.dims[1]);
  const auto width = static_cast<double>(instruction.dims[3]);
  const program::Products& products = program::row_of(instruction.op).products;
  const bool is_backward = products.executed > products.needed;  // it makes the scores a second time
  const double pass = is_backward ? rates.facts->attention_backward.value : 1;
  const auto rate = [&](double keys) {
    return rates.attention_flops_per_s * attention_shape(*rates.facts, keys, width) * pass;
  };
  const program::AttentionWindow& window = program.constants.window;
  const double windowed = window.windowed_share(program.layers);
  const double visible = window.visible_share(instruction.dims[1]);
  const double seen = windowed * visible;
  const double flops = executed_flops(program, instruction) / (1 - windowed + seen);  // of a full layer
  return flops / 2 * ((1 - windowed) / rate(length) + seen / rate(visible * length));
}

}  // namespace

const std::optional<describe::Figure>& peak_tflops(const describe::Device& device,
                                                   describe::Precision precision) {
  switch (precision) {
    case describe::Precision::fp16:
      return device.peak_fp16_tflops;
    case describe::Precision::bf16:
      return device.peak_bf16_tflops;
    case describe::Precision::fp32:
      break;
  }
  return device.peak_fp32_tflops;
}

double sustained_fraction(const describe::Device& device) {
  return describe::architecture_of(device).sustained_fraction.value;
}

KernelRates kernel_rates(const describe::Device& device, const describe::Plan& plan) {
  const DeviceArchitecture& facts = describe::architecture_of(device);
  KernelRates rates;
  rates.facts = &facts;
  const double peak = value(peak_tflops(device, plan.precision));
  rates.matmul_flops_per_s = peak * kTera * matmul_fraction(device, facts) * facts.sustained_fraction.value;
  rates.attention_flops_per_s = peak * kTera * attention_fraction(device, facts);
  rates.memory_bytes_per_s = kGiga * (device.memory_measured_gbytes_per_s
                                          ? device.memory_measured_gbytes_per_s->value
                                          : facts.memory_fraction.value * value(device.memory_gbytes_per_s));
  rates.multiprocessors = std::max(1.0, value(device.multiprocessors));
  if (facts.aligned_size && facts.unaligned_fraction && plan.precision != describe::Precision::fp32) {
    rates.unaligned_flops_per_s = facts.unaligned_fraction->value * value(device.peak_fp32_tflops) * kTera;
  }
  const describe::Engine& engine = plan.engine;
  rates.matmul_flops_per_s *= engine.matmul_fraction;
  rates.attention_flops_per_s *= engine.attention_fraction;
  rates.measured = calibrated_for(device, plan.devices());
  if (rates.measured != nullptr && peak == 0) {
    rates.matmul_flops_per_s = rates.attention_flops_per_s = fastest_product(*rates.measured);
  }
  rates.shortest_kernel_s = kMicro * value(device.shortest_kernel_us);
  rates.kernel_gap_s = engine.kernel_gap_us * kMicro;
  rates.host_issue_s = engine.host_issue_us * kMicro;
  rates.elementwise_factor = engine.elementwise_factor;
  if (engine.elementwise_factor > 1 && device.multiprocessors) {
    const double each = kGiga * facts.elementwise_gbytes_per_s.value;
    const double held_up = rates.memory_bytes_per_s / (each * rates.multiprocessors);
    rates.elementwise_factor = std::max(1.0, engine.elementwise_factor * held_up);
  }
  rates.loss_factor = rates.elementwise_factor * engine.loss_bytes_per_logit / describe::kFusedLossBytes;
  rates.slowdown = engine.traffic_slowdown;
  rates.fused_softmax_batches = engine.fused_softmax_batches;
  if (facts.one_stream) {
    rates.one_stream = true;
    rates.elementwise_factor = rates.loss_factor = 1;
  }
  return rates;
}

double kernel_launches(const KernelRates& rates, const Instruction& instruction) {
  if (program::row_of(instruction.op).cost != Cost::softmax) return 1;
  const auto [rows, width, third, fourth] = instruction.dims;
  const bool is_fused = rates.fused_softmax_batches > 0 && rows / width % rates.fused_softmax_batches == 0;
  return is_fused ? 1 : kUnfusedSoftmaxKernels;
}

double moved_bytes(const StepProgram& program, const Instruction& instruction) {
  const program::Shape shape = program::shape_of(instruction);
  const program::InstructionRow& row = program::row_of(instruction.op);
  if (row.cost == Cost::none) return 0;
  double bytes = 0;
  for (std::size_t i = 0; i < row.operands.size(); ++i) {
    const program::OperandRow& operand = row.operands[i];
    if (operand.role == program::Role::none) break;
    if (instruction.operands[i].buffer == program::kNoBuffer) continue;
    bytes += operand.passes * static_cast<double>(operand.moved(shape)) * bytes_of(program, instruction, i);
  }
  return bytes;
}

double kernel_seconds(const KernelRates& rates, const StepProgram& program, const Instruction& instruction) {
  if (rates.measured != nullptr) {
    if (const double seconds = measured_seconds(*rates.measured, program, instruction); seconds > 0)
      return std::max(seconds, rates.shortest_kernel_s);
  }
  const auto dim = [&](std::size_t i) { return static_cast<double>(instruction.dims[i]); };
  const auto seconds_of_bytes = [&] { return moved_bytes(program, instruction) / rates.memory_bytes_per_s; };
  const program::InstructionRow& row = program::row_of(instruction.op);
  switch (row.cost) {
    case Cost::linear_product: {
      const std::size_t inner = row.products.inner;
      return product_seconds(rates, 1, dim(inner == 0 ? 1 : 0), dim(inner == 2 ? 1 : 2), dim(inner),
                             moved_bytes(program, instruction));
    }
    case Cost::fused_attention:
      return fused_attention_seconds(rates, program, instruction);
    case Cost::attention_product:
      return attention_product_seconds(rates, program, instruction);
    case Cost::elementwise:
    case Cost::softmax:
      return rates.elementwise_factor * kernel_launches(rates, instruction) * seconds_of_bytes();
    case Cost::loss:
      return rates.loss_factor * seconds_of_bytes();
    case Cost::streaming:
    case Cost::none:
      break;
  }
  return seconds_of_bytes();
}

}  // namespace zeroplan::predict
