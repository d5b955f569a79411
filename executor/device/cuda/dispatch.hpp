#pragma once

#include "executor/device/cuda/launch.hpp"
#include "executor/device/cuda/product.hpp"

namespace zeroplan::executor::cuda {

bool executes(program::Op op);

// Starts what an instruction needs on the launcher's stream. Throws DeviceError for what it cannot have.
void dispatch(const Kernel& kernel, const Launcher& launcher, Products& products);

}  // namespace zeroplan::executor::cuda
