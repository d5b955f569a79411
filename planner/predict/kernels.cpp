#include "planner/predict/kernels.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

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

// What large products and streaming kernels reach of their peaks, where the profile has no measurement, by
// architecture: A100 and H100 tables of the Azure benchmarking guide, MAMF of ml-engineering, NVIDIA forum
// topic 79781 for Volta.
// `sustained`: what a whole step reaches of that, relative to an A100, fitted by scripts/fit_times: a
// benchmark of one product finds a cool chip. Blackwell is taken as Hopper.
struct Attainable {
  std::string_view architecture;
  double matmul = 0.8, memory = 0.85, attention = 0.5;
  double sustained = 1;
};
constexpr std::array<Attainable, 5> kAttainable{{{"Volta", 0.90, 0.85, 0.5, 0.582},
                                                 {"Ampere", 0.85, 0.834, 0.755, 1},
                                                 {"Hopper", 0.80, 0.887, 0.39, 0.942},
                                                 {"Blackwell", 0.776, 0.865, 0.39, 0.942},
                                                 {"CDNA3", 0.51, 0.85, 0.5, 1}}};

// Fused attention: FlashAttention 2, of which `attention` is the limit for long sequences and wide heads. Its
// forward on an H100 is 180 to 299 TFLOPS for heads of 64 and 191 to 335 for 128 at lengths of 512 to 16384
// (flash-attention, assets/flash3_fp16_fwd.png): within 15 % of limit x s / (s + 300) x d / (d + 17). On an
// A100 179.5 at d 64, s 8192 (Azure guide). Backward: cuDNN 9.19 on an H200 reaches 0.76 to 0.85 of its
// forward.
constexpr double kAttentionHalfLength = 300;
constexpr double kAttentionHalfHead = 17;
constexpr double kAttentionBackward = 0.82;

// To fp32, scale, mask, softmax, to 16 bits; backward as many. Each moves about what the fused one does.
constexpr double kUnfusedSoftmaxKernels = 5;

// Kernels that an engine does not fuse are held up by the multiprocessors, not by the memory: an engine's
// elementwise_factor is over the memory of an A100, which moves this for each of its multiprocessors, bytes
// per second.
constexpr double kBytesPerMultiprocessor = 1700e9 / 108;

// The processors of a host.
constexpr std::string_view kHostArchitecture = "host";

// Tiles that matrix libraries choose from, with what a smaller one loses by reading its operands more often.
struct Tile {
  double rows = 0, columns = 0, efficiency = 1;
};
constexpr std::array<Tile, 4> kTiles{{{256, 128, 1.0}, {128, 128, 0.95}, {128, 64, 0.8}, {32, 64, 0.4}}};
// Filling and emptying the pipeline of a tile costs so many steps of the inner dimension.
constexpr double kTileOverheadDepth = 32;

// 16-bit products go to Volta's matrix units only where their sizes are multiples of this; others run on the
// plain units, which have two 16-bit operations for an fp32 one (NVIDIA, Matrix Multiplication Background
// User's Guide: requirements before cuBLAS 11). They reach what well-tuned fp32 products do.
constexpr std::int64_t kAlignedSize = 8;
constexpr std::string_view kNeedsAlignment = "Volta";
constexpr double kPlainUnits = 2 * 0.85;

Attainable attainable_of(const describe::Device& device) {
  for (const Attainable& known : kAttainable) {
    if (device.architecture == known.architecture) return known;
  }
  return {};
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

bool is_aligned(double size) { return static_cast<std::int64_t>(size) % kAlignedSize == 0; }

// `batch` products of C[m,n] = A[m,k] B[k,n], which move `bytes` in all.
double product_seconds(const KernelRates& rates, double batch, double m, double n, double k, double bytes) {
  double best = 0;
  double flops_per_s = rates.matmul_flops_per_s;
  if (rates.unaligned_flops_per_s > 0 && !(is_aligned(m) && is_aligned(n) && is_aligned(k))) {
    flops_per_s = std::min(flops_per_s, rates.unaligned_flops_per_s);
  }
  for (const Tile& tile : kTiles) {
    const double tiles = batch * rounded_up(m / tile.rows) * rounded_up(n / tile.columns);
    const double waves = rounded_up(tiles / rates.multiprocessors);
    const double flops =
        waves * rates.multiprocessors * tile.rows * tile.columns * 2 * (k + kTileOverheadDepth);
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
  const double pass = is_backward ? kAttentionBackward : 1;
  const auto rate = [&](double keys) {
    const double shape = keys / (keys + kAttentionHalfLength) * width / (width + kAttentionHalfHead);
    return rates.attention_flops_per_s * shape * pass;
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

double sustained_fraction(const describe::Device& device) { return attainable_of(device).sustained; }

KernelRates kernel_rates(const describe::Device& device, const describe::Plan& plan) {
  KernelRates rates;
  const auto value = [](const std::optional<describe::Figure>& figure) { return figure ? figure->value : 0; };
  const double peak = value(peak_tflops(device, plan.precision));
  const Attainable attainable = attainable_of(device);
  rates.matmul_flops_per_s = peak * kTera * attainable.matmul * attainable.sustained;
  rates.attention_flops_per_s = peak * kTera * attainable.attention;
  rates.memory_bytes_per_s =
      kGiga * (device.memory_measured_gbytes_per_s ? device.memory_measured_gbytes_per_s->value
                                                   : attainable.memory * value(device.memory_gbytes_per_s));
  rates.multiprocessors = std::max(1.0, value(device.multiprocessors));
  if (device.architecture == kNeedsAlignment && plan.precision != describe::Precision::fp32) {
    rates.unaligned_flops_per_s = kPlainUnits * value(device.peak_fp32_tflops) * kTera;
  }
  const describe::Engine& engine = plan.engine;
  rates.matmul_flops_per_s *= engine.matmul_fraction;
  rates.attention_flops_per_s *= engine.attention_fraction;
  rates.measured = calibrated_for(device, plan.devices());
  if (rates.measured != nullptr && peak == 0) {
    rates.matmul_flops_per_s = rates.attention_flops_per_s = fastest_product(*rates.measured);
  }
  rates.kernel_gap_s = engine.kernel_gap_us * kMicro;
  rates.host_issue_s = engine.host_issue_us * kMicro;
  rates.elementwise_factor = engine.elementwise_factor;
  if (engine.elementwise_factor > 1 && device.multiprocessors) {
    const double held_up = rates.memory_bytes_per_s / (kBytesPerMultiprocessor * rates.multiprocessors);
    rates.elementwise_factor = std::max(1.0, engine.elementwise_factor * held_up);
  }
  rates.loss_factor = rates.elementwise_factor * engine.loss_bytes_per_logit / describe::kFusedLossBytes;
  rates.slowdown = engine.traffic_slowdown;
  rates.fused_softmax_batches = engine.fused_softmax_batches;
  if (device.architecture == kHostArchitecture) {
    // An engine's pace is of GPUs; the processors' own kernels and collectives run one after the other.
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
      return seconds;
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
