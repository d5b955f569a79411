#include <cblas.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <string_view>
#include <utility>
#include <vector>

#include "executor/half_arrays.hpp"
#include "tests/emulation/cublaslt/objects.hpp"
#include "tests/emulation/runtime/queue.hpp"

// Products. What the algorithm of a heuristic remembers, in its eight words, is held against the product it is used for.
namespace zeroplan::emulation {

namespace {

using program::DataType;

std::size_t bytes_of(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }
DataType type_of(cudaDataType type) { return type == CUDA_R_16F ? DataType::fp16 : DataType::bf16; }

std::size_t elements_of(const MatrixLayout& layout) {
  return static_cast<std::size_t>((layout.batches - 1) * layout.stride +
                                  (layout.columns - 1) * layout.leading + layout.rows);
}

std::vector<float> floats_of(const std::byte* from, cudaDataType type, std::int64_t count) {
  std::vector<float> floats(static_cast<std::size_t>(count));
  if (type == CUDA_R_32F) {
    std::memcpy(floats.data(), from, floats.size() * sizeof(float));
  } else {
    std::vector<std::uint16_t> halves(floats.size());
    std::memcpy(halves.data(), from, halves.size() * sizeof(std::uint16_t));
    executor::floats_from_halves(type_of(type), halves.data(), floats.data(), count);
  }
  return floats;
}

void store_floats(const std::vector<float>& floats, cudaDataType type, std::byte* to) {
  if (type == CUDA_R_32F) {
    std::memcpy(to, floats.data(), floats.size() * sizeof(float));
    return;
  }
  std::vector<std::uint16_t> halves(floats.size());
  executor::halves_from_floats(type_of(type), floats.data(), halves.data(),
                               static_cast<std::int64_t>(floats.size()));
  std::memcpy(to, halves.data(), halves.size() * sizeof(std::uint16_t));
}

// A matrix of a batch, its columns one behind another.
std::vector<float> matrix_of(const std::byte* memory, const MatrixLayout& layout, std::int64_t batch) {
  std::vector<float> matrix;
  matrix.reserve(static_cast<std::size_t>(layout.rows * layout.columns));
  for (std::int64_t column = 0; column < layout.columns; ++column) {
    const auto offset = static_cast<std::size_t>(batch * layout.stride + column * layout.leading);
    const std::vector<float> part =
        floats_of(memory + offset * bytes_of(layout.type), layout.type, layout.rows);
    matrix.insert(matrix.end(), part.begin(), part.end());
  }
  return matrix;
}

struct Matmul {
  MatmulDescription description;
  MatrixLayout a, b, c, d;

  bool a_transposed() const { return description.a_transposed == CUBLAS_OP_T; }
  bool b_transposed() const { return description.b_transposed == CUBLAS_OP_T; }
  bool has_bias() const {
    return description.epilogue == CUBLASLT_EPILOGUE_BIAS ||
           description.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  }
  bool has_gelu() const {
    return description.epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
           description.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  }
  cudaDataType bias_type() const {
    return description.bias_type < 0 ? d.type : static_cast<cudaDataType>(description.bias_type);
  }
  std::int64_t depth() const { return a_transposed() ? a.rows : a.columns; }
  // Distinguishes products for which other algorithms are found.
  std::uint64_t digest() const {
    std::uint64_t digest = 1469598103934665603ULL;
    const auto add = [&](std::int64_t value) {
      digest = (digest ^ static_cast<std::uint64_t>(value)) * 1099511628211ULL;
    };
    for (const MatrixLayout* layout : {&a, &b, &c, &d}) {
      for (const std::int64_t value : {std::int64_t{layout->type}, layout->rows, layout->columns,
                                       layout->leading, std::int64_t{layout->batches}, layout->stride}) {
        add(value);
      }
    }
    for (const std::int64_t value :
         {std::int64_t{description.a_transposed}, std::int64_t{description.b_transposed},
          std::int64_t{description.epilogue}, description.before_gelu_leading}) {
      add(value);
    }
    return digest;
  }
};

Matmul matmul_of(cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                 cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  return {static_cast<MatmulDescription&>(*description), static_cast<MatrixLayout&>(*a),
          static_cast<MatrixLayout&>(*b), static_cast<MatrixLayout&>(*c), static_cast<MatrixLayout&>(*d)};
}

// Of what heuristic and product both look at.
cublasStatus_t check(const Matmul& matmul, int device) {
  const auto& [description, a, b, c, d] = matmul;
  const auto [a_rows, a_columns] =
      matmul.a_transposed() ? std::pair(a.columns, a.rows) : std::pair(a.rows, a.columns);
  const auto [b_rows, b_columns] =
      matmul.b_transposed() ? std::pair(b.columns, b.rows) : std::pair(b.rows, b.columns);
  if (a_rows != d.rows || a_columns != b_rows || b_columns != d.columns || !(c == d)) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the shapes do not fit");
  }
  for (const MatrixLayout* layout : {&a, &b}) {
    if (layout->batches != d.batches) return refuse(CUBLAS_STATUS_INVALID_VALUE, "batches differ");
  }
  if (d.batches > 1 && std::abs(d.stride) < (d.columns - 1) * d.leading + d.rows) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the results of a batch overlap");
  }
  if (a.type != b.type || (d.type != a.type && d.type != CUDA_R_32F)) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "no product of these types");
  }
  int major = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess) {
    return refuse(CUBLAS_STATUS_NOT_INITIALIZED, "there is no device");
  }
  if (a.type == CUDA_R_16BF && major < 8) {
    return refuse(CUBLAS_STATUS_ARCH_MISMATCH, "bf16 needs compute capability 8.0");
  }
  if (description.epilogue != CUBLASLT_EPILOGUE_DEFAULT && !matmul.has_bias() && !matmul.has_gelu()) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "an epilogue that is not emulated");
  }
  if (matmul.has_gelu()) {
    const bool is_whole =
        description.before_gelu_leading >= d.rows && description.before_gelu_leading % 8 == 0;
    if (!is_whole || description.before_gelu == nullptr ||
        reinterpret_cast<std::uintptr_t>(description.before_gelu) % 16 != 0) {
      return refuse(
          CUBLAS_STATUS_INVALID_VALUE,
          "what is before GELU has no place, or none of rows of 8 elements that begins at 16 bytes");
    }
    if (d.batches != 1 || d.type == CUDA_R_32F)
      return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "GELU of a batch or of fp32 is not emulated");
  }
  if (matmul.has_bias() && (description.bias == nullptr || matmul.bias_type() != d.type)) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "no bias, or one of another type than the result");
  }
  return CUBLAS_STATUS_SUCCESS;
}

// Hendrycks and Gimpel, arXiv 1606.08415, the tanh form.
float gelu(float x) {
  const double cubic = x + 0.044715 * x * x * x;
  return static_cast<float>(0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * cubic)));
}

void multiply(const Matmul& matmul, float alpha, const std::byte* a, const std::byte* b, float beta,
              const std::byte* bias, std::byte* d, std::byte* before_gelu) {
  openblas_set_num_threads(1);
  const MatrixLayout& result = matmul.d;
  const std::vector<float> added =
      bias != nullptr ? floats_of(bias, result.type, result.rows) : std::vector<float>();
  for (std::int64_t batch = 0; batch < result.batches; ++batch) {
    const std::vector<float> left = matrix_of(a, matmul.a, batch);
    const std::vector<float> right = matrix_of(b, matmul.b, batch);
    std::vector<float> sums(static_cast<std::size_t>(result.rows * result.columns));
    cblas_sgemm(CblasColMajor, matmul.a_transposed() ? CblasTrans : CblasNoTrans,
                matmul.b_transposed() ? CblasTrans : CblasNoTrans, static_cast<blasint>(result.rows),
                static_cast<blasint>(result.columns), static_cast<blasint>(matmul.depth()), alpha,
                left.data(), static_cast<blasint>(matmul.a.rows), right.data(),
                static_cast<blasint>(matmul.b.rows), 0, sums.data(), static_cast<blasint>(result.rows));
    for (std::int64_t column = 0; column < result.columns; ++column) {
      const auto offset = static_cast<std::size_t>(batch * result.stride + column * result.leading);
      std::byte* to = d + offset * bytes_of(result.type);
      const auto first = sums.begin() + column * result.rows;
      std::vector<float> values(first, first + result.rows);
      if (beta != 0) {
        const std::vector<float> before = floats_of(to, result.type, result.rows);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] += beta * before[i];
      }
      for (std::size_t i = 0; i < added.size(); ++i) values[i] += added[i];
      if (before_gelu != nullptr) {
        store_floats(values, result.type,
                     before_gelu + static_cast<std::size_t>(column * matmul.description.before_gelu_leading) *
                                       bytes_of(result.type));
        std::transform(values.begin(), values.end(), values.begin(), gelu);
      }
      store_floats(values, result.type, to);
    }
  }
}

bool overlap(const Range& one, const Range& other) {
  const auto* first = static_cast<const std::byte*>(one.begin);
  const auto* second = static_cast<const std::byte*>(other.begin);
  return first < second + other.bytes && second < first + one.bytes;
}

}  // namespace

}  // namespace zeroplan::emulation

using namespace zeroplan::emulation;  // NOLINT(google-build-using-namespace): what follows is its C interface

extern "C" {

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t lightHandle,
                                              cublasLtMatmulDesc_t operationDesc,
                                              cublasLtMatrixLayout_t Adesc, cublasLtMatrixLayout_t Bdesc,
                                              cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
                                              cublasLtMatmulPreference_t preference, int requestedAlgoCount,
                                              cublasLtMatmulHeuristicResult_t heuristicResultsArray[],
                                              int* returnAlgoCount) {
  *returnAlgoCount = 0;
  if (requestedAlgoCount < 1) return refuse(CUBLAS_STATUS_INVALID_VALUE, "no algorithm is asked for");
  const Matmul matmul = matmul_of(operationDesc, Adesc, Bdesc, Cdesc, Ddesc);
  const cublasStatus_t status = check(matmul, lightHandle->device);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const auto& wanted = static_cast<const MatmulPreference&>(*preference);
  if (!cublaslt_finds_algorithms()) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "the heuristic is told to find none");
  }
  if (bytes_of(matmul.d.type) == 2 &&
      (wanted.reduction_schemes & ~std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}) != 0) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "a divided depth would be added in 16 bits");
  }
  cublasLtMatmulHeuristicResult_t& result = heuristicResultsArray[0];
  result = {};
  result.algo.data[0] = matmul.digest();
  result.algo.data[1] = wanted.workspace_bytes;
  for (std::size_t i = 0; i < wanted.alignments.size(); ++i) result.algo.data[2 + i] = wanted.alignments[i];
  result.workspaceSize = wanted.workspace_bytes;
  result.state = CUBLAS_STATUS_SUCCESS;
  result.wavesCount = 1;
  *returnAlgoCount = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t computeDesc,
                              const void* alpha, const void* A, cublasLtMatrixLayout_t Adesc, const void* B,
                              cublasLtMatrixLayout_t Bdesc, const void* beta, const void* C,
                              cublasLtMatrixLayout_t Cdesc, void* D, cublasLtMatrixLayout_t Ddesc,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspaceSizeInBytes,
                              cudaStream_t stream) {
  const Matmul matmul = matmul_of(computeDesc, Adesc, Bdesc, Cdesc, Ddesc);
  const cublasStatus_t status = check(matmul, lightHandle->device);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (device_of(stream) != lightHandle->device) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the stream is of another device than the library");
  }
  if (algo == nullptr || algo->data[0] != matmul.digest()) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the algorithm was found for another product");
  }
  const std::size_t workspace_bytes = algo->data[1];
  if (workspaceSizeInBytes < workspace_bytes || (workspace == nullptr && workspace_bytes > 0)) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the workspace is smaller than the algorithm's");
  }
  const void* pointers[] = {A, B, C, D, workspace};
  for (std::size_t i = 0; i < 5; ++i) {
    const std::uint64_t alignment = i < 4 ? algo->data[2 + i] : 256;
    if (reinterpret_cast<std::uintptr_t>(pointers[i]) % alignment != 0) {
      return refuse(CUBLAS_STATUS_INVALID_VALUE,
                    fmt::format("matrix {} is less aligned than the {} bytes that were promised", "ABCDW"[i],
                                alignment));
    }
  }
  if (C != D) return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "only products in place are emulated");

  const float scale = *static_cast<const float*>(alpha);
  const float kept = *static_cast<const float*>(beta);
  const auto* bias = matmul.has_bias() ? static_cast<const std::byte*>(matmul.description.bias) : nullptr;
  auto* before_gelu = matmul.has_gelu() ? static_cast<std::byte*>(matmul.description.before_gelu) : nullptr;
  std::vector<Range> ranges{
      {D, elements_of(matmul.d) * bytes_of(matmul.d.type), kept != 0, true},
      {A, elements_of(matmul.a) * bytes_of(matmul.a.type), true, false},
      {B, elements_of(matmul.b) * bytes_of(matmul.b.type), true, false},
      {bias, bias != nullptr ? static_cast<std::size_t>(matmul.d.rows) * bytes_of(matmul.d.type) : 0, true,
       false},
      {before_gelu,
       before_gelu != nullptr
           ? static_cast<std::size_t>((matmul.d.columns - 1) * matmul.description.before_gelu_leading +
                                      matmul.d.rows) *
                 bytes_of(matmul.d.type)
           : 0,
       false, true},
      {workspace, workspace_bytes, false, true}};
  std::erase_if(ranges, [](const Range& range) { return range.bytes == 0; });
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (overlap(ranges[0], ranges[i]))
      return refuse(CUBLAS_STATUS_INVALID_VALUE, "the result overlaps what it is of");
  }
  const auto run = [=] {
    multiply(matmul, scale, host(static_cast<const std::byte*>(A)), host(static_cast<const std::byte*>(B)),
             kept, bias != nullptr ? host(bias) : nullptr, host(static_cast<std::byte*>(D)),
             before_gelu != nullptr ? host(before_gelu) : nullptr);
    if (workspace_bytes > 0) std::memset(host(workspace), 0xff, workspace_bytes);
  };
  const cudaError_t error = enqueue(stream, "cublasLtMatmul", ranges, run);
  if (error == cudaSuccess) return CUBLAS_STATUS_SUCCESS;
  return refuse(CUBLAS_STATUS_EXECUTION_FAILED, cudaGetErrorString(error));
}

}  // extern "C"
