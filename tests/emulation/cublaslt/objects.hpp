#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <string>

// What the emulated cuBLASLt keeps behind its handles.
struct cublasLtContext {
  int device = 0;
};

namespace zeroplan::emulation {

// NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): nobody reads what is behind the handle
struct MatmulDescription : cublasLtMatmulDescOpaque_t {
  std::int32_t a_transposed = CUBLAS_OP_N, b_transposed = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  std::int32_t bias_type = -1;  // the result's
  void* before_gelu = nullptr;
  std::int64_t before_gelu_leading = 0;
};

// NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): nobody reads what is behind the handle
struct MatrixLayout : cublasLtMatrixLayoutOpaque_t {
  cudaDataType type = CUDA_R_32F;
  std::int64_t rows = 0, columns = 0, leading = 0;
  std::int32_t batches = 1;
  std::int64_t stride = 0;

  bool operator==(const MatrixLayout& other) const {
    return type == other.type && rows == other.rows && columns == other.columns && leading == other.leading &&
           batches == other.batches && stride == other.stride;
  }
};

// NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): nobody reads what is behind the handle
struct MatmulPreference : cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace_bytes = 0;
  std::uint32_t reduction_schemes = 7;
  std::array<std::uint32_t, 4> alignments{256, 256, 256, 256};
};

// Notes why (cublaslt_refusal) and returns the status.
cublasStatus_t refuse(cublasStatus_t status, const std::string& why);
bool cublaslt_finds_algorithms();

}  // namespace zeroplan::emulation
