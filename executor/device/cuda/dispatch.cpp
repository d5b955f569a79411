#include "executor/device/cuda/dispatch.hpp"

#include "executor/device/cuda/checks.hpp"
#include "executor/device/cuda/kernels.hpp"
#include "planner/instructions/table.hpp"

namespace zeroplan::executor::cuda {

using program::Op;

namespace {

using Entry = void (*)(const Kernel& kernel, const Launcher& launcher);

// nullptr: a product, or none of this device's.
Entry entry_of(Op op) {
  switch (op) {
    case Op::fill_zero:
      return fill_zero;
    case Op::copy:
    case Op::copy_to_host:
    case Op::copy_to_device:
      return copy;
    case Op::accumulate:
    case Op::accumulate_host:
      return accumulate;
    case Op::embedding_forward:
      return embedding_forward;
    case Op::embedding_backward:
      return embedding_backward;
    case Op::norm_forward:
      return norm_forward;
    case Op::norm_backward:
      return norm_backward;
    case Op::rotary_forward:
      return rotary_forward;
    case Op::rotary_backward:
      return rotary_backward;
    case Op::attention_forward:
      return attention_forward;
    case Op::attention_row_dot:
      return attention_row_dot;
    case Op::attention_backward:
      return attention_backward;
    case Op::attention_scores:
      return attention_scores;
    case Op::softmax_forward:
      return softmax_forward;
    case Op::attention_values:
      return attention_values;
    case Op::attention_values_backward:
      return attention_values_backward;
    case Op::softmax_backward:
      return softmax_backward;
    case Op::attention_scores_backward:
      return attention_scores_backward;
    case Op::activation_forward:
      return activation_forward;
    case Op::activation_backward:
      return activation_backward;
    case Op::dropout_forward:
      return dropout_forward;
    case Op::dropout_backward:
      return dropout_backward;
    case Op::residual_backward:
      return residual_backward;
    case Op::residual_add:
      return residual_add;
    case Op::cross_entropy_maximum:
      return cross_entropy_maximum;
    case Op::cross_entropy_exponent:
      return cross_entropy_exponent;
    case Op::cross_entropy_loss:
      return cross_entropy_loss;
    case Op::cross_entropy_backward:
      return cross_entropy_backward;
    case Op::gradient_norm:
      return gradient_norm;
    case Op::gradient_to_fp32:
      return gradient_to_fp32;
    case Op::optimizer_update:
      return optimizer_update;
    case Op::scale_update:
      return scale_update;
    default:
      return nullptr;
  }
}

// Whether what the second instruction writes may be written before the first one has read all that it reads: they share no
// memory, or, where each row is read before it is written, the same rows.
bool may_write_early(const Kernel& first, const Kernel& second, bool by_rows) {
  const OperandRanges of_first(first), of_second(second);
  for (const OperandRange& read : std::span<const OperandRange>(of_first)) {
    if (!read.reads) continue;
    for (const OperandRange& written : std::span<const OperandRange>(of_second)) {
      if (!written.writes || (by_rows && read.begin == written.begin && read.bytes == written.bytes))
        continue;
      const auto* from = static_cast<const std::byte*>(read.begin);
      const auto* to = static_cast<const std::byte*>(written.begin);
      if (from < to + written.bytes && to < from + read.bytes) return false;
    }
  }
  return true;
}

bool is_product(Op op) {
  return op == Op::matmul || op == Op::matmul_input_gradient || op == Op::matmul_weight_gradient;
}

}  // namespace

bool executes(Op op) { return entry_of(op) != nullptr || is_product(op); }

Flops attention_flops(const Kernel& kernel) {
  const program::InstructionRow& row = program::row_of(kernel.op);
  const program::Products& products = row.products;
  const std::int64_t length = kernel.dims[1];
  const auto of_pairs = [&dims = kernel.dims](std::int64_t pairs) {
    return 2 * static_cast<Flops>(dims[0] * dims[2]) * static_cast<Flops>(pairs) *
           static_cast<Flops>(dims[3]);
  };
  const Flops seen = of_pairs(length * (length + 1) / 2);
  if (row.cost == program::Cost::fused_attention) return products.executed * seen;
  if (row.cost != program::Cost::attention_product) return 0;
  const bool capped = settings_of(kernel).model.attention_soft_cap > 0;
  const int to_scores = products.to_scores + (capped ? products.to_capped_scores : 0);
  return to_scores * of_pairs(length * length) + products.from_scores * seen;
}

bool dispatch_joined(const Kernel& first, const Kernel& second, const Launcher& launcher,
                     Products& products) {
  if (first.op == Op::residual_add && second.op == Op::norm_forward && may_write_early(first, second, true))
    return residual_add_and_norm(first, second, launcher);
  if (first.op == Op::matmul && second.op == Op::activation_forward && may_write_early(first, second, false))
    return products.matmul_and_gelu(first, second, launcher);
  return false;
}

void dispatch(const Kernel& kernel, const Launcher& launcher, Products& products) {
  switch (kernel.op) {
    case Op::matmul:
      return products.matmul(kernel, launcher);
    case Op::matmul_input_gradient:
      return products.matmul_input_gradient(kernel, launcher);
    case Op::matmul_weight_gradient:
      return products.matmul_weight_gradient(kernel, launcher);
    default:
      break;
  }
  const Entry entry = entry_of(kernel.op);
  if (entry == nullptr) refuse(kernel, "this device does not have the instruction");
  entry(kernel, launcher);
}

}  // namespace zeroplan::executor::cuda
