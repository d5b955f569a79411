// The types of matrices of NVIDIA's library_types.h, as far as this project calls cuBLASLt with them.
#pragma once

typedef enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 } cudaDataType;
