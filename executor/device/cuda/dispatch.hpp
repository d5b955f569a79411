#pragma once

#include "executor/device/cuda/launch.hpp"
#include "executor/device/cuda/product.hpp"

namespace zeroplan::executor::cuda {

bool executes(program::Op op);

// Starts what an instruction needs on the launcher's stream. Throws DeviceError for what it cannot have.
void dispatch(const Kernel& kernel, const Launcher& launcher, Products& products);

// Of the products that a fused attention's kernels make inside themselves: the scores on and below the diagonal. 0 for
// other instructions; Products counts its own.
Flops fused_attention_flops(const Kernel& kernel);

}  // namespace zeroplan::executor::cuda
