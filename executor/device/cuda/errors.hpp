#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace zeroplan::executor::cuda {

// "an illegal memory access was encountered (cudaErrorIllegalAddress)".
std::string text_of(cudaError_t error);

// Throws DeviceError with the call's name unless it succeeded.
void check(cudaError_t error, const char* call);

}  // namespace zeroplan::executor::cuda
