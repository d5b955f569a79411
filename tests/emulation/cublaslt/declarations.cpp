#include <cublasLt.h>

#include <type_traits>

// What this project takes for granted of cublasLt.h. It is compiled with the declarations of tests/emulation/include and, where
// there is a toolkit, with NVIDIA's.
static_assert(CUDA_R_32F == 0 && CUDA_R_16F == 2 && CUDA_R_16BF == 14);
static_assert(CUBLAS_STATUS_SUCCESS == 0 && CUBLAS_STATUS_NOT_INITIALIZED == 1 &&
              CUBLAS_STATUS_ALLOC_FAILED == 3);
static_assert(CUBLAS_STATUS_INVALID_VALUE == 7 && CUBLAS_STATUS_ARCH_MISMATCH == 8);
static_assert(CUBLAS_STATUS_EXECUTION_FAILED == 13 && CUBLAS_STATUS_INTERNAL_ERROR == 14);
static_assert(CUBLAS_STATUS_NOT_SUPPORTED == 15);
static_assert(CUBLAS_OP_N == 0 && CUBLAS_OP_T == 1 && CUBLAS_COMPUTE_32F == 68);
static_assert(CUBLASLT_MATMUL_DESC_TRANSA == 3 && CUBLASLT_MATMUL_DESC_TRANSB == 4);
static_assert(CUBLASLT_MATMUL_DESC_EPILOGUE == 7 && CUBLASLT_MATMUL_DESC_BIAS_POINTER == 8);
static_assert(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER == 11 && CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD == 12);
static_assert(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE == 26);
static_assert(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT == 5 && CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET == 6);
static_assert(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES == 1 &&
              CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK == 3);
static_assert(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES == 5 &&
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES == 6);
static_assert(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES == 7 &&
              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES == 8);
static_assert(CUBLASLT_EPILOGUE_DEFAULT == 1 && CUBLASLT_EPILOGUE_BIAS == 4);
static_assert(CUBLASLT_EPILOGUE_GELU_AUX == 160 && CUBLASLT_EPILOGUE_GELU_AUX_BIAS == 164);
static_assert(CUBLASLT_REDUCTION_SCHEME_NONE == 0 && CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE == 2);
static_assert(sizeof(cublasLtMatmulAlgo_t) == 64 && sizeof(cublasLtMatmulHeuristicResult_t) == 96);
static_assert(offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) == 64);
static_assert(offsetof(cublasLtMatmulHeuristicResult_t, state) == 72);

static_assert(std::is_same_v<decltype(&cublasLtGetStatusName), const char* (*)(cublasStatus_t)>);
static_assert(std::is_same_v<decltype(&cublasLtCreate), cublasStatus_t (*)(cublasLtHandle_t*)>);
static_assert(std::is_same_v<decltype(&cublasLtDestroy), cublasStatus_t (*)(cublasLtHandle_t)>);
static_assert(std::is_same_v<decltype(&cublasLtMatmulDescCreate),
                             cublasStatus_t (*)(cublasLtMatmulDesc_t*, cublasComputeType_t, cudaDataType)>);
static_assert(std::is_same_v<decltype(&cublasLtMatmulDescDestroy), cublasStatus_t (*)(cublasLtMatmulDesc_t)>);
static_assert(std::is_same_v<decltype(&cublasLtMatmulDescSetAttribute),
                             cublasStatus_t (*)(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
                                                const void*, size_t)>);
static_assert(
    std::is_same_v<decltype(&cublasLtMatrixLayoutCreate),
                   cublasStatus_t (*)(cublasLtMatrixLayout_t*, cudaDataType, uint64_t, uint64_t, int64_t)>);
static_assert(
    std::is_same_v<decltype(&cublasLtMatrixLayoutDestroy), cublasStatus_t (*)(cublasLtMatrixLayout_t)>);
static_assert(std::is_same_v<decltype(&cublasLtMatrixLayoutSetAttribute),
                             cublasStatus_t (*)(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t,
                                                const void*, size_t)>);
static_assert(std::is_same_v<decltype(&cublasLtMatmulPreferenceCreate),
                             cublasStatus_t (*)(cublasLtMatmulPreference_t*)>);
static_assert(std::is_same_v<decltype(&cublasLtMatmulPreferenceDestroy),
                             cublasStatus_t (*)(cublasLtMatmulPreference_t)>);
static_assert(std::is_same_v<decltype(&cublasLtMatmulPreferenceSetAttribute),
                             cublasStatus_t (*)(cublasLtMatmulPreference_t,
                                                cublasLtMatmulPreferenceAttributes_t, const void*, size_t)>);
static_assert(std::is_same_v<
              decltype(&cublasLtMatmulAlgoGetHeuristic),
              cublasStatus_t (*)(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                 cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                 cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t[], int*)>);
static_assert(std::is_same_v<decltype(&cublasLtMatmul),
                             cublasStatus_t (*)(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*,
                                                const void*, cublasLtMatrixLayout_t, const void*,
                                                cublasLtMatrixLayout_t, const void*, const void*,
                                                cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t,
                                                const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t)>);
