#pragma once

#include "executor/device/cuda/launch.hpp"
#include "executor/device/cuda/product.hpp"

namespace zeroplan::executor::cuda {

bool executes(program::Op op);

// Starts what an instruction needs on the launcher's stream. Throws DeviceError for what it cannot have.
void dispatch(const Kernel& kernel, const Launcher& launcher, Products& products);

// Starts what two instructions need, the second right after the first, as one kernel where that is possible and faster; the
// same is in memory then, and GELU is rounded once less. False, and nothing starts, where it is not.
bool dispatch_joined(const Kernel& first, const Kernel& second, const Launcher& launcher, Products& products);

// Of the products that attention's kernels make inside themselves: of scores in memory all are made, and those on and below the
// diagonal are what is multiplied; fused kernels make no others. 0 for other instructions; Products counts its own.
Flops attention_flops(const Kernel& kernel);

}  // namespace zeroplan::executor::cuda
