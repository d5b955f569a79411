#include "executor/device/cuda/product.hpp"

#include <doctest/doctest.h>

#include <string>

#include "tests/emulation/bare_device.hpp"
#include "tests/emulation/cublaslt/cublaslt.hpp"
#include "tests/emulation/runtime/machine.hpp"
#include "tests/executor/kernel_table.hpp"

namespace {

using namespace zeroplan::executor;
namespace program = zeroplan::program;
using namespace zeroplan::executor::test;
using zeroplan::Bytes;
using zeroplan::emulation::cublaslt_objects;
using zeroplan::emulation::cublaslt_refusal;
using zeroplan::emulation::Gpu;
using zeroplan::emulation::Machine;
using zeroplan::emulation::set_cublaslt_finds_algorithms;

// Products on a device of compute capability `sm`, with what else they need.
struct ProductBed {
  explicit ProductBed(int sm = 90)
      : machine({.gpus = {Gpu{.sm = sm}}, .stuck_seconds = 5}),
        device(0, [this](const Kernel& kernel, cudaStream_t stream) { run(kernel, stream); }) {
    launcher.sm = sm;
    launcher.multiprocessors = 4;
    launcher.workspace_bytes = std::max(cuda::kKernelWorkspace, cuda::Products::workspace_bytes(sm));
    launcher.workspace = device.allocate(launcher.workspace_bytes, program::Space::device);
  }
  ~ProductBed() {
    device.deallocate(launcher.workspace, launcher.workspace_bytes, program::Space::device);
    CHECK(machine.problems() == std::vector<std::string>());
  }
  ProductBed(const ProductBed&) = delete;
  ProductBed& operator=(const ProductBed&) = delete;

  void run(const Kernel& kernel, cudaStream_t stream) {
    launcher.stream = stream;
    switch (kernel.op) {
      case Op::matmul:
        return products.matmul(kernel, launcher);
      case Op::matmul_input_gradient:
        return products.matmul_input_gradient(kernel, launcher);
      case Op::matmul_weight_gradient:
        return products.matmul_weight_gradient(kernel, launcher);
      default:
        FAIL("no product");
    }
  }

  Machine machine;
  BareDevice device;
  cuda::Launcher launcher;
  cuda::Products products;
};

const std::vector<MatmulShape>& shapes() {
  static const std::vector<MatmulShape> shapes{{1, 1, 1},  {3, 7, 17}, {17, 3, 1},
                                               {7, 17, 3}, {5, 8, 80}, {64, 48, 40}};
  return shapes;
}

std::string refused(const std::function<void()>& call) {
  try {
    call();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("products by cuBLASLt are those of the kernel table") {
  ProductBed bed;
  for (const MatmulShape shape : shapes()) {
    for (const DataType type : real_types()) {
      for (const DataType result : {type, DataType::fp32}) {
        CAPTURE(name_of_type(type));
        CAPTURE(name_of_type(result));
        CAPTURE(shape.m);
        check_matmul(bed.device, shape, type, result);
        check_matmul_backward(bed.device, shape, type, result);
      }
    }
  }
}

TEST_CASE("operands that begin at any element are multiplied") {
  ProductBed bed;
  const MatmulShape s{5, 8, 16};
  for (const DataType type : real_types()) {
    KernelHarness h(bed.device);
    const auto size = program::bytes_of(type);
    const Values x = random_values(s.m * s.k, 1, type);
    const Values weight = random_values(s.n * s.k, 2, type);
    Values shifted(1, 0);
    shifted.insert(shifted.end(), weight.begin(), weight.end());
    Tensor w_ = h.upload(shifted, type);
    w_.data += size;
    w_.elements -= 1;
    const Tensor x_ = h.upload(x, type);
    const Tensor y_ = h.zeros(static_cast<std::size_t>(s.m * s.n), type);
    const Tensor aligned = h.upload(weight, type);
    h.run(Op::matmul, {s.m, s.n, s.k}, {x_, aligned, Tensor{}, y_});  // for which another algorithm is found
    h.run(Op::matmul, {s.m, s.n, s.k}, {x_, w_, Tensor{}, y_});
    expect_close("y", h.download(y_), matmul(x, weight, {}, s), type);
  }
}

TEST_CASE("products of a batch are as far apart as was said") {
  ProductBed bed;
  KernelHarness h(bed.device);
  // Three products {2 x 4} = {2 x 3}{3 x 4}, column by column, of which the second factor is the same.
  const Values a = random_values(std::int64_t{3 * 10}, 1);
  const Values b = random_values(std::int64_t{12}, 2);
  Values want(3 * 8);
  for (std::size_t batch = 0; batch < 3; ++batch) {
    for (std::size_t column = 0; column < 4; ++column) {
      for (std::size_t row = 0; row < 2; ++row) {
        for (std::size_t i = 0; i < 3; ++i)
          want[batch * 8 + column * 2 + row] += 0.5 * a[batch * 10 + i * 2 + row] * b[column * 3 + i];
      }
    }
  }
  const Tensor a_ = h.upload(a, DataType::fp32);
  const Tensor b_ = h.upload(b, DataType::fp32);
  const Tensor d_ = h.zeros(want.size(), DataType::fp32);
  bed.launcher.stream = bed.device.start(program::Stream::compute, {});
  bed.products.run("scores",
                   {.rows = 2,
                    .columns = 4,
                    .depth = 3,
                    .a_leading = 2,
                    .b_leading = 3,
                    .d_leading = 2,
                    .batches = 3,
                    .a_stride = 10,
                    .b_stride = 0,
                    .d_stride = 8},
                   {.a = a_.data, .b = b_.data, .d = d_.data}, 0.5F, bed.launcher);
  bed.device.synchronize();
  expect_close("batch", h.download(d_), want, DataType::fp32);
  CHECK(bed.products.flops() == 2.0 * 2 * 4 * 3 * 3);
}

TEST_CASE("what cuBLASLt does not have is refused with the instruction and its shape") {
  SUBCASE("bf16 before compute capability 8.0") {
    ProductBed bed(70);
    check_matmul(bed.device, {3, 7, 17}, DataType::fp16, DataType::fp16);
    const std::string text = refused([&] {
      check_matmul(bed.device, {3, 7, 17}, DataType::bf16, DataType::bf16);
    });
    CHECK(contains(text, "matmul: product of 7 x 3 x 17, bf16 to bf16 with a bias"));
    CHECK(contains(text, "CUBLAS_STATUS_ARCH_MISMATCH"));
  }
  SUBCASE("no algorithm") {
    ProductBed bed;
    set_cublaslt_finds_algorithms(false);
    const std::string text = refused([&] {
      check_matmul_backward(bed.device, {5, 6, 7}, DataType::fp32, DataType::fp32);
    });
    set_cublaslt_finds_algorithms(true);
    CHECK(contains(text, "matmul_input_gradient: product of 7 x 5 x 6, fp32 to fp32"));
    CHECK(contains(text, "has no algorithm: CUBLAS_STATUS_NOT_SUPPORTED"));
  }
  SUBCASE("a result that is one of the factors") {
    ProductBed bed;
    KernelHarness h(bed.device);
    const Tensor x = h.upload(random_values(std::int64_t{16}, 1), DataType::fp32);
    const Tensor w = h.upload(random_values(std::int64_t{16}, 2), DataType::fp32);
    CHECK(contains(refused([&] {
                     h.run(Op::matmul, {4, 4, 4}, {x, w, Tensor{}, x});
                   }),
                   "CUBLAS_STATUS_INVALID_VALUE"));
    CHECK(contains(cublaslt_refusal(), "overlaps"));
  }
}

TEST_CASE("a workspace is as large as NVIDIA advises and nothing is left of products") {
  CHECK(cuda::Products::workspace_bytes(80) == Bytes{4} << 20);
  CHECK(cuda::Products::workspace_bytes(90) == Bytes{32} << 20);
  const std::int64_t before = cublaslt_objects();
  {
    ProductBed bed;
    check_matmul(bed.device, {3, 4, 5}, DataType::bf16, DataType::bf16);
    CHECK(cublaslt_objects() > before);
  }
  CHECK(cublaslt_objects() == before);
}

TEST_CASE("the emulated cuBLASLt refuses what NVIDIA's may let pass") {
  const Machine machine({.gpus = {Gpu{}}, .stuck_seconds = 5});
  cublasLtHandle_t library = nullptr;
  REQUIRE(cublasLtCreate(&library) == CUBLAS_STATUS_SUCCESS);
  cublasLtMatrixLayout_t layout = nullptr;
  CHECK(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 4, 4, 3) == CUBLAS_STATUS_INVALID_VALUE);
  REQUIRE(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 4, 4, 4) == CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulDesc_t description = nullptr;
  REQUIRE(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
  const std::int64_t wide = CUBLAS_OP_T;
  CHECK(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &wide, sizeof wide) ==
        CUBLAS_STATUS_INVALID_VALUE);
  cublasLtMatmulPreference_t preference = nullptr;
  REQUIRE(cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS);
  const std::uint64_t bytes = 4096;
  REQUIRE(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                               sizeof bytes) == CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  REQUIRE(cublasLtMatmulAlgoGetHeuristic(library, description, layout, layout, layout, layout, preference, 1,
                                         &result, &found) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(found == 1);
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 8192) == cudaSuccess);
  auto* at = static_cast<std::byte*>(memory);
  const float one = 1;
  const float none = 0;
  const auto multiply = [&](std::byte* a, std::size_t workspace, const cublasLtMatmulAlgo_t* algorithm) {
    return cublasLtMatmul(library, description, &one, a, layout, at + 512, layout, &none, at + 1024, layout,
                          at + 1024, layout, algorithm, at + 4096, workspace, nullptr);
  };
  CHECK(multiply(at, bytes, &result.algo) == CUBLAS_STATUS_SUCCESS);
  CHECK(multiply(at + 4, bytes, &result.algo) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(contains(cublaslt_refusal(), "less aligned"));
  CHECK(multiply(at, bytes - 1, &result.algo) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(contains(cublaslt_refusal(), "workspace"));
  const cublasLtMatmulAlgo_t another{};
  CHECK(multiply(at, bytes, &another) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(contains(cublaslt_refusal(), "another product"));
  // What is left in the workspace is no number.
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  float rest = 0;
  REQUIRE(cudaMemcpyAsync(&rest, at + 4096 + 128, sizeof rest, cudaMemcpyDeviceToHost, nullptr) ==
          cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(std::isnan(rest));
  CHECK(cudaFree(memory) == cudaSuccess);
  cublasLtMatmulPreferenceDestroy(preference);
  cublasLtMatmulDescDestroy(description);
  cublasLtMatrixLayoutDestroy(layout);
  CHECK(cublasLtDestroy(library) == CUBLAS_STATUS_SUCCESS);
}
