#pragma once

// Before functions that code of the host and kernels of a GPU share, so that each rule is written once.
#if defined(__CUDACC__)
#define ZEROPLAN_HOST_DEVICE __host__ __device__
#else
#define ZEROPLAN_HOST_DEVICE
#endif
