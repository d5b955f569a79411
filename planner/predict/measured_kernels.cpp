#include "planner/predict/measured_kernels.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "planner/instructions/table.hpp"
#include "planner/predict/kernels.hpp"
#include "planner/predict/work.hpp"

namespace zeroplan::predict {
namespace {

using describe::KernelSizes;
using describe::kMostAxes;
using describe::MeasuredKernel;
using program::Instruction;

// Where a size lies on an axis: between two of its points.
struct AxisPosition {
  std::size_t below = 0, above = 0;
  double part = 0;  // of the way from below to above
};

AxisPosition place_on(const std::vector<double>& log_axis, double size) {
  if (log_axis.size() < 2) return {};
  const double position = std::log2(size);
  const std::size_t last = log_axis.size() - 1;
  if (position <= log_axis.front()) return {};
  if (position >= log_axis.back()) return {last, last, 0};
  std::size_t above = 1;
  while (log_axis[above] < position) ++above;
  const double low = log_axis[above - 1];
  return {above - 1, above, (position - low) / (log_axis[above] - low)};
}

double at_least_one(std::int64_t dim) { return static_cast<double>(std::max<std::int64_t>(1, dim)); }

double interpolated(const MeasuredKernel& kernel, const std::array<double, kMostAxes>& sizes) {
  std::array<AxisPosition, kMostAxes> places;
  std::array<std::size_t, kMostAxes> strides{};
  std::size_t stride = 1;
  for (std::size_t i = kMostAxes; i-- > 0;) {
    places[i] = place_on(kernel.log_axes[i], sizes[i]);
    strides[i] = stride;
    stride *= std::max<std::size_t>(1, kernel.log_axes[i].size());
  }
  double log_rate = 0;
  for (unsigned corner = 0; corner < 1U << kMostAxes; ++corner) {
    double weight = 1;
    std::size_t index = 0;
    for (std::size_t i = 0; i < kMostAxes; ++i) {
      const bool high = (corner >> i & 1U) != 0;
      weight *= high ? places[i].part : 1 - places[i].part;
      index += strides[i] * (high ? places[i].above : places[i].below);
    }
    if (weight > 0) log_rate += weight * kernel.log_rates[index];
  }
  return std::exp2(log_rate);
}

}  // namespace

describe::KernelKind kind_of(const program::StepProgram& program, const Instruction& instruction) {
  describe::OperandTypes types = 0;
  for (std::size_t i = 0; i < program::kMaxOperands; ++i) {
    const program::BufferId buffer = instruction.operands[i].buffer;
    const auto type = buffer == program::kNoBuffer
                          ? describe::kAbsentType
                          : static_cast<describe::OperandTypes>(program.buffers[buffer].type);
    types |= type << (describe::kBitsPerType * i);
  }
  const bool has_kind = program::has_activation_kind(instruction.op);
  return {instruction.op, has_kind ? instruction.extra : 0, types};
}

double kernel_work(const program::StepProgram& program, const Instruction& instruction) {
  if (const Flops flops = executed_flops(program, instruction); flops > 0) return flops;
  if (const double bytes = moved_bytes(program, instruction); bytes > 0) return bytes;
  // Small kernels that the roofline leaves out: an element of each operand for each of their dims.
  double elements = 1;
  for (const std::int64_t dim : instruction.dims) elements *= at_least_one(dim);
  return elements;
}

std::array<double, kMostAxes> kernel_sizes(const Instruction& instruction, double work) {
  const auto dim = [&](std::size_t i) { return at_least_one(instruction.dims[i]); };
  switch (describe::sizes_of(instruction.op)) {
    case KernelSizes::product:
      return {dim(0), dim(1), dim(2)};
    case KernelSizes::attention:
      return {dim(1), dim(3), 1};
    case KernelSizes::streaming:
      break;
  }
  return {work, 1, 1};
}

double measured_seconds(const describe::CalibratedRates& rates, const program::StepProgram& program,
                        const Instruction& instruction) {
  const MeasuredKernel* kernel = rates.find(kind_of(program, instruction));
  if (kernel == nullptr) return 0;
  const double work = kernel_work(program, instruction);
  return work / interpolated(*kernel, kernel_sizes(instruction, work));
}

double fastest_product(const describe::CalibratedRates& rates) {
  double fastest = 0;
  for (const MeasuredKernel& kernel : rates.kernels()) {
    if (describe::sizes_of(kernel.kind.op) != KernelSizes::product) continue;
    for (const double rate : kernel.rates) fastest = std::max(fastest, rate);
  }
  return fastest;
}

const describe::CalibratedRates* calibrated_for(const describe::Device& device, std::int64_t devices) {
  const describe::CalibratedRates* nearest = nullptr;
  for (const describe::CalibratedRates& rates : device.calibrated) {
    if (nearest == nullptr || std::abs(rates.devices() - devices) < std::abs(nearest->devices() - devices)) {
      nearest = &rates;
    }
  }
  return nearest;
}

}  // namespace zeroplan::predict
