#include "executor/device/cpu/execute.hpp"

#include "executor/device/cpu/call.hpp"
#include "executor/device/cpu/kernels.hpp"
#include "executor/device/cpu/operands.hpp"
#include "executor/device/cpu/step_functions.hpp"

namespace zeroplan::executor::cpu {

using program::Op;

namespace {

// nullptr: this device does not have the instruction.
Function function_of(Op op) {
  switch (op) {
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
    case Op::dropout_forward:
      return call<dropout_forward>;
    case Op::dropout_backward:
      return call<dropout_backward>;
    case Op::residual_backward:
      return call<residual_backward>;
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
    default:
      return step_function_of(op);
  }
}

}  // namespace

bool executes(Op op) { return function_of(op) != nullptr; }

void execute(const Kernel& kernel, Workers& workers) {
  run_function(function_of(kernel.op), kernel, workers);
}

}  // namespace zeroplan::executor::cpu
