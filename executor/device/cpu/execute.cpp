#include "executor/device/cpu/execute.hpp"

#include <type_traits>

#include "executor/device/cpu/kernels.hpp"
#include "executor/device/cpu/operands.hpp"

namespace zeroplan::executor::cpu {

using program::Op;

namespace {

using Function = void (*)(const Kernel& kernel, Workers& workers);

// A kernel takes what it needs of its settings and its threads.
template <auto kernel_function>
void call(const Kernel& kernel, Workers& workers) {
  constexpr auto kFunction = kernel_function;
  using Type = decltype(kernel_function);
  static const StepSettings defaults;
  const StepSettings& settings = kernel.settings != nullptr ? *kernel.settings : defaults;
  if constexpr (std::is_invocable_v<Type, const Kernel&, const StepSettings&, Workers&>) {
    kFunction(kernel, settings, workers);
  } else if constexpr (std::is_invocable_v<Type, const Kernel&, Workers&>) {
    (void)settings;
    kFunction(kernel, workers);
  } else {
    kFunction(kernel, settings);
  }
}

// nullptr: this device does not have the instruction.
Function function_of(Op op) {
  switch (op) {
    case Op::fill_zero:
      return call<fill_zero>;
    case Op::copy:
    case Op::copy_to_host:
    case Op::copy_to_device:
      return call<copy>;
    case Op::accumulate:
    case Op::accumulate_host:
      return call<accumulate>;
    case Op::embedding_forward:
      return call<embedding_forward>;
    case Op::embedding_backward:
      return call<embedding_backward>;
    case Op::norm_forward:
      return call<norm_forward>;
    case Op::norm_backward:
      return call<norm_backward>;
    case Op::matmul:
      return call<matmul>;
    case Op::matmul_input_gradient:
      return call<matmul_input_gradient>;
    case Op::matmul_weight_gradient:
      return call<matmul_weight_gradient>;
    case Op::rotary_forward:
      return call<rotary_forward>;
    case Op::rotary_backward:
      return call<rotary_backward>;
    case Op::attention_forward:
      return call<attention_forward>;
    case Op::attention_row_dot:
      return call<attention_row_dot>;
    case Op::attention_backward:
      return call<attention_backward>;
    case Op::attention_scores:
      return call<attention_scores>;
    case Op::softmax_forward:
      return call<softmax_forward>;
    case Op::attention_values:
      return call<attention_values>;
    case Op::attention_values_backward:
      return call<attention_values_backward>;
    case Op::softmax_backward:
      return call<softmax_backward>;
    case Op::attention_scores_backward:
      return call<attention_scores_backward>;
    case Op::activation_forward:
      return call<activation_forward>;
    case Op::activation_backward:
      return call<activation_backward>;
    case Op::residual_add:
      return call<residual_add>;
    case Op::cross_entropy_maximum:
      return call<cross_entropy_maximum>;
    case Op::cross_entropy_exponent:
      return call<cross_entropy_exponent>;
    case Op::cross_entropy_loss:
      return call<cross_entropy_loss>;
    case Op::cross_entropy_backward:
      return call<cross_entropy_backward>;
    case Op::gradient_norm:
      return call<gradient_norm>;
    case Op::gradient_to_fp32:
      return call<gradient_to_fp32>;
    case Op::optimizer_update:
      return call<optimizer_update>;
    case Op::scale_update:
      return call<scale_update>;
    default:
      return nullptr;
  }
}

}  // namespace

bool executes(Op op) { return function_of(op) != nullptr; }

void execute(const Kernel& kernel, Workers& workers) {
  const Function function = function_of(kernel.op);
  if (function == nullptr) refuse(kernel, "this device does not have the instruction");
  check_operands(kernel);
  function(kernel, workers);
}

}  // namespace zeroplan::executor::cpu
