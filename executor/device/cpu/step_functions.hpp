#pragma once

#include "executor/device/cpu/workers.hpp"
#include "executor/device/device.hpp"

// The instructions that run on the processors of a GPU's host where states are offloaded to it: data movement and the
// step. They link without OpenBLAS (the library zeroplan_cpu_step).
namespace zeroplan::executor::cpu {

using Function = void (*)(const Kernel& kernel, Workers& workers);

// nullptr: the instruction is none of them.
Function step_function_of(program::Op op);

// Checks the operands, and runs it. Throws DeviceError, which names the instruction, where there is no function or an
// operand cannot be.
void run_function(Function function, const Kernel& kernel, Workers& workers);

}  // namespace zeroplan::executor::cpu
