#include "planner/describe/machine/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "planner/instructions/table.hpp"

namespace zeroplan::describe {
namespace {

using program::Cost;

std::vector<double> logarithms(const std::vector<double>& values) {
  std::vector<double> result(values.size());
  std::transform(values.begin(), values.end(), result.begin(), [](double value) { return std::log2(value); });
  return result;
}

// An operand that only one of the two has makes less of a difference than one of another type.
int difference(const KernelKind& a, const KernelKind& b) {
  constexpr int kOtherType = 4, kOtherVariant = 32;
  int sum = a.variant == b.variant ? 0 : kOtherVariant;
  for (std::size_t i = 0; i < program::kMaxOperands; ++i) {
    const OperandTypes one = type_at(a.types, i);
    const OperandTypes other = type_at(b.types, i);
    if (one == other) continue;
    sum += one == kAbsentType || other == kAbsentType ? 1 : kOtherType;
  }
  return sum;
}

}  // namespace

KernelSizes sizes_of(program::Op op) {
  switch (program::row_of(op).cost) {
    case Cost::linear_product:
      return KernelSizes::product;
    case Cost::attention_product:
    case Cost::fused_attention:
      return KernelSizes::attention;
    default:
      return KernelSizes::streaming;
  }
}

CalibratedRates::CalibratedRates(std::int64_t devices, std::vector<MeasuredKernel> kernels,
                                 std::string source, double skew)
    : devices_(devices), source_(std::move(source)), skew_(skew), kernels_(std::move(kernels)) {
  std::stable_sort(kernels_.begin(), kernels_.end(),
                   [](const MeasuredKernel& a, const MeasuredKernel& b) { return a.kind < b.kind; });
  for (MeasuredKernel& kernel : kernels_) {
    for (std::size_t i = 0; i < kMostAxes; ++i) kernel.log_axes[i] = logarithms(kernel.axes[i]);
    kernel.log_rates = logarithms(kernel.rates);
    ++first_of_op_[static_cast<std::size_t>(kernel.kind.op) + 1];
  }
  for (std::size_t op = 0; op < program::kOps; ++op) {
    first_of_op_[op + 1] = static_cast<std::uint16_t>(first_of_op_[op + 1] + first_of_op_[op]);
  }
}

const MeasuredKernel* CalibratedRates::find(const KernelKind& kind) const {
  const auto index = static_cast<std::size_t>(kind.op);
  const MeasuredKernel* best = nullptr;
  int least = std::numeric_limits<int>::max();
  for (std::size_t i = first_of_op_[index]; i < first_of_op_[index + 1]; ++i) {
    const MeasuredKernel& kernel = kernels_[i];
    if (kernel.kind == kind) return &kernel;
    if (const int off = difference(kernel.kind, kind); off < least) {
      least = off;
      best = &kernel;
    }
  }
  return best;
}

const std::vector<std::string>& activation_names() {
  static const std::vector<std::string> names{"gelu",       "gelu_tanh",       "silu",       "relu",
                                              "gated_gelu", "gated_gelu_tanh", "gated_silu", "gated_relu"};
  return names;
}

const std::vector<std::string>& axis_names(KernelSizes sizes) {
  static const std::vector<std::string> product{"m", "n", "k"};
  static const std::vector<std::string> attention{"sequence", "head_dim"};
  static const std::vector<std::string> streaming{"bytes"};
  return sizes == KernelSizes::product ? product : sizes == KernelSizes::attention ? attention : streaming;
}

}  // namespace zeroplan::describe
