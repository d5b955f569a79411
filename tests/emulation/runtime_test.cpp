#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <array>
#include <cmath>

namespace {

TEST_CASE("new device memory is NaN, and comes back as it was written") {
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 8 * sizeof(float)) == cudaSuccess);
  std::array<float, 8> values{};
  CHECK(cudaMemcpyAsync(values.data(), memory, sizeof(values), cudaMemcpyDeviceToHost, nullptr) ==
        cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  for (const float value : values) CHECK(std::isnan(value));
  CHECK(cudaFree(memory) == cudaSuccess);
}

}  // namespace
