#include "executor/device/cpu/step_functions.hpp"

#include "executor/device/cpu/call.hpp"
#include "executor/device/cpu/kernels.hpp"
#include "executor/device/cpu/operands.hpp"

namespace zeroplan::executor::cpu {

using program::Op;

Function step_function_of(Op op) {
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

void run_function(Function function, const Kernel& kernel, Workers& workers) {
  if (function == nullptr) refuse(kernel, "this device does not have the instruction");
  check_operands(kernel);
  function(kernel, workers);
}

}  // namespace zeroplan::executor::cpu
