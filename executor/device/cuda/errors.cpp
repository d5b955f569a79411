#include "executor/device/cuda/errors.hpp"

#include <fmt/format.h>

#include "executor/error.hpp"

namespace zeroplan::executor::cuda {

std::string text_of(cudaError_t error) {
  return fmt::format("{} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
}

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();  // so that a later call does not answer for this one
  throw DeviceError(fmt::format("cuda device: {}: {}", call, text_of(error)));
}

}  // namespace zeroplan::executor::cuda
