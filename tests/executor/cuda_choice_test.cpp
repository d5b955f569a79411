#include "executor/cuda_choice.hpp"

#include <doctest/doctest.h>

#include "executor/error.hpp"

using namespace zeroplan::executor;

// Compute capabilities: NVIDIA, "CUDA GPUs"; drivers: the CUDA 12 and 13 release notes, table "CUDA toolkit and minimum required
// driver versions".
TEST_CASE("the driver and the card choose the module of the CUDA device") {
  const CudaDriver both{.version = 13000, .sm = {90, 80, 120}};
  CHECK(choose_cuda_build(both, 0).suffix.empty());
  CHECK(choose_cuda_build(both, 1).suffix.empty());
  CHECK(choose_cuda_build(both, 2).suffix.empty());
  CHECK(choose_cuda_build(both, 0).libraries.empty());

  for (const int version : {12000, 12080, 13000}) {
    for (const int sm : {70, 72, 75}) {
      const CudaBuild build = choose_cuda_build({.version = version, .sm = {sm}}, 0);
      CHECK(build.suffix == "_sm70");
      REQUIRE(build.libraries.size() == 2);
      CHECK(build.libraries[0] == "libcudart.so.12");
    }
  }
}

TEST_CASE("a card or a driver without kernels is refused with what to do") {
  CHECK_THROWS_WITH_AS(
      choose_cuda_build({.version = 12080, .sm = {90}}, 0),
      "GPU 0 has compute capability 9.0, whose kernels are built with CUDA 13, and the driver "
      "runs CUDA 12.8 at most: install driver 580 or later",
      NotPossible);
  CHECK_THROWS_WITH_AS(choose_cuda_build({.version = 11080, .sm = {70}}, 0),
                       doctest::Contains("install driver 525 or later"), NotPossible);
  CHECK_THROWS_WITH_AS(choose_cuda_build({.version = 12080, .sm = {61}}, 0),
                       doctest::Contains("zeroplan has kernels for 7.0 (V100) and later"), NotPossible);
}
