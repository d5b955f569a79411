#pragma once

#include "executor/device/cuda/launch.hpp"

namespace zeroplan::executor::cuda {

// Adds the bias of a matmul to its result, which is there already and is of another type.
void add_bias(const Kernel& kernel, const Launcher& launcher);

}  // namespace zeroplan::executor::cuda
