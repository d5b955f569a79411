#pragma once

#include "executor/device/cpu/workers.hpp"
#include "executor/device/device.hpp"

// Instructions on the processors of the host: of the CPU device, and of a GPU's host where states are offloaded to it.
namespace zeroplan::executor::cpu {

bool executes(program::Op op);

// Throws DeviceError, which names the instruction, where there is none or an operand cannot be.
void execute(const Kernel& kernel, Workers& workers);

}  // namespace zeroplan::executor::cpu
