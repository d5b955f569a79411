#include "tests/emulation/cublaslt/objects.hpp"

#include <atomic>
#include <cstring>

#include "tests/emulation/cublaslt/cublaslt.hpp"

namespace zeroplan::emulation {

namespace {

std::string& refusal() {
  thread_local std::string why;
  return why;
}

std::atomic<std::int64_t>& objects() {
  static std::atomic<std::int64_t> alive = 0;
  return alive;
}

std::atomic<bool>& finds_algorithms() {
  static std::atomic<bool> finds = true;
  return finds;
}

template <class Object, class Handle>
cublasStatus_t create(Handle* handle) {
  if (handle == nullptr) return refuse(CUBLAS_STATUS_INVALID_VALUE, "no place for the handle");
  *handle = new Object{};
  ++objects();
  return CUBLAS_STATUS_SUCCESS;
}

template <class Object, class Handle>
cublasStatus_t destroy(Handle* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_SUCCESS;
  delete static_cast<Object*>(handle);
  --objects();
  return CUBLAS_STATUS_SUCCESS;
}

template <class Value>
cublasStatus_t store(Value& value, const void* from, std::size_t bytes) {
  if (bytes != sizeof value) return refuse(CUBLAS_STATUS_INVALID_VALUE, "an attribute has another size");
  std::memcpy(&value, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

cublasStatus_t refuse(cublasStatus_t status, const std::string& why) {
  refusal() = why;
  return status;
}
std::string cublaslt_refusal() { return refusal(); }
std::int64_t cublaslt_objects() { return objects(); }
bool cublaslt_finds_algorithms() { return finds_algorithms(); }
void set_cublaslt_finds_algorithms(bool finds) { finds_algorithms() = finds; }

}  // namespace zeroplan::emulation

namespace emulation = zeroplan::emulation;

extern "C" {

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "unknown";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* lightHandle) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) {
    return emulation::refuse(CUBLAS_STATUS_NOT_INITIALIZED, "there is no device");
  }
  const cublasStatus_t status = emulation::create<cublasLtContext>(lightHandle);
  if (status == CUBLAS_STATUS_SUCCESS) (*lightHandle)->device = device;
  return status;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t lightHandle) {
  return emulation::destroy<cublasLtContext>(lightHandle);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmulDesc, cublasComputeType_t computeType,
                                        cudaDataType scaleType) {
  if (computeType != CUBLAS_COMPUTE_32F || scaleType != CUDA_R_32F) {
    return emulation::refuse(CUBLAS_STATUS_NOT_SUPPORTED, "only sums and scales in fp32 are emulated");
  }
  return emulation::create<emulation::MatmulDescription>(matmulDesc);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmulDesc) {
  return emulation::destroy<emulation::MatmulDescription>(matmulDesc);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                              cublasLtMatmulDescAttributes_t attr, const void* buf,
                                              size_t sizeInBytes) {
  auto& description = static_cast<emulation::MatmulDescription&>(*matmulDesc);
  switch (attr) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return emulation::store(description.a_transposed, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return emulation::store(description.b_transposed, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return emulation::store(description.epilogue, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return emulation::store(description.bias, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return emulation::store(description.before_gelu, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return emulation::store(description.before_gelu_leading, buf, sizeInBytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return emulation::store(description.bias_type, buf, sizeInBytes);
  }
  return emulation::refuse(CUBLAS_STATUS_INVALID_VALUE, "an attribute of descriptions that is not emulated");
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* matLayout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  if (rows == 0 || cols == 0) return emulation::refuse(CUBLAS_STATUS_INVALID_VALUE, "an empty matrix");
  if (ld < static_cast<std::int64_t>(rows)) {
    return emulation::refuse(CUBLAS_STATUS_INVALID_VALUE, "a leading dimension below the rows");
  }
  const cublasStatus_t status = emulation::create<emulation::MatrixLayout>(matLayout);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  auto& layout = static_cast<emulation::MatrixLayout&>(**matLayout);
  layout.type = type;
  layout.rows = static_cast<std::int64_t>(rows);
  layout.columns = static_cast<std::int64_t>(cols);
  layout.leading = ld;
  return status;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matLayout) {
  return emulation::destroy<emulation::MatrixLayout>(matLayout);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matLayout,
                                                cublasLtMatrixLayoutAttribute_t attr, const void* buf,
                                                size_t sizeInBytes) {
  auto& layout = static_cast<emulation::MatrixLayout&>(*matLayout);
  switch (attr) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return emulation::store(layout.batches, buf, sizeInBytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return emulation::store(layout.stride, buf, sizeInBytes);
  }
  return emulation::refuse(CUBLAS_STATUS_INVALID_VALUE, "an attribute of layouts that is not emulated");
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* pref) {
  return emulation::create<emulation::MatmulPreference>(pref);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref) {
  return emulation::destroy<emulation::MatmulPreference>(pref);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    const void* buf, size_t sizeInBytes) {
  auto& preference = static_cast<emulation::MatmulPreference&>(*pref);
  switch (attr) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return emulation::store(preference.workspace_bytes, buf, sizeInBytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return emulation::store(preference.reduction_schemes, buf, sizeInBytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return emulation::store(
          preference.alignments[static_cast<std::size_t>(attr - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)],
          buf, sizeInBytes);
  }
  return emulation::refuse(CUBLAS_STATUS_INVALID_VALUE, "an attribute of preferences that is not emulated");
}

}  // extern "C"
