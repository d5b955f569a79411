#include <nccl.h>

#include <cstddef>
#include <type_traits>

// What this project takes for granted of nccl.h. It is compiled with the declarations of tests/emulation/include and, where there
// is a toolkit, with NVIDIA's. The configuration grows at its end from version to version.
static_assert(NCCL_MAJOR == 2 && NCCL_VERSION_CODE == NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH));
static_assert(NCCL_VERSION(2, 18, 0) == 21800 && sizeof(ncclUniqueId) == 128);
static_assert(ncclSuccess == 0 && ncclUnhandledCudaError == 1 && ncclSystemError == 2 &&
              ncclInternalError == 3);
static_assert(ncclInvalidArgument == 4 && ncclInvalidUsage == 5 && ncclRemoteError == 6 &&
              ncclInProgress == 7);
static_assert(ncclSum == 0 && ncclMax == 2 && NCCL_SPLIT_NOCOLOR == -1);
static_assert(ncclUint8 == 1 && ncclInt32 == 2 && ncclFloat16 == 6 && ncclFloat32 == 7 && ncclBfloat16 == 9);
static_assert(offsetof(ncclConfig_t, magic) == 8 && offsetof(ncclConfig_t, version) == 12);
static_assert(offsetof(ncclConfig_t, blocking) == 16 && offsetof(ncclConfig_t, splitShare) == 40);

static_assert(std::is_same_v<decltype(&ncclGetVersion), ncclResult_t (*)(int*)>);
static_assert(std::is_same_v<decltype(&ncclGetUniqueId), ncclResult_t (*)(ncclUniqueId*)>);
static_assert(std::is_same_v<decltype(&ncclCommInitRankConfig),
                             ncclResult_t (*)(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*)>);
static_assert(std::is_same_v<decltype(&ncclCommSplit),
                             ncclResult_t (*)(ncclComm_t, int, int, ncclComm_t*, ncclConfig_t*)>);
static_assert(std::is_same_v<decltype(&ncclCommFinalize), ncclResult_t (*)(ncclComm_t)>);
static_assert(std::is_same_v<decltype(&ncclCommDestroy), ncclResult_t (*)(ncclComm_t)>);
static_assert(std::is_same_v<decltype(&ncclCommAbort), ncclResult_t (*)(ncclComm_t)>);
static_assert(std::is_same_v<decltype(&ncclCommGetAsyncError), ncclResult_t (*)(ncclComm_t, ncclResult_t*)>);
static_assert(std::is_same_v<decltype(&ncclGetErrorString), const char* (*)(ncclResult_t)>);
static_assert(std::is_same_v<decltype(&ncclGetLastError), const char* (*)(ncclComm_t)>);
static_assert(
    std::is_same_v<decltype(&ncclAllReduce), ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t,
                                                              ncclRedOp_t, ncclComm_t, cudaStream_t)>);
static_assert(
    std::is_same_v<decltype(&ncclReduceScatter), ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t,
                                                                  ncclRedOp_t, ncclComm_t, cudaStream_t)>);
static_assert(
    std::is_same_v<decltype(&ncclAllGather),
                   ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t)>);
static_assert(
    std::is_same_v<decltype(&ncclBroadcast), ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, int,
                                                              ncclComm_t, cudaStream_t)>);
static_assert(std::is_same_v<decltype(&ncclSend), ncclResult_t (*)(const void*, size_t, ncclDataType_t, int,
                                                                   ncclComm_t, cudaStream_t)>);
static_assert(std::is_same_v<decltype(&ncclRecv),
                             ncclResult_t (*)(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)>);

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
static_assert(NCCL_WIN_COLL_SYMMETRIC == 1);
#ifdef NCCL_WIN_REQUIRED_ALIGNMENT  // from 2.28 on
static_assert(NCCL_WIN_REQUIRED_ALIGNMENT == 4096);
#endif
static_assert(std::is_same_v<decltype(&ncclMemAlloc), ncclResult_t (*)(void**, size_t)>);
static_assert(std::is_same_v<decltype(&ncclMemFree), ncclResult_t (*)(void*)>);
static_assert(std::is_same_v<decltype(&ncclCommWindowRegister),
                             ncclResult_t (*)(ncclComm_t, void*, size_t, ncclWindow_t*, int)>);
static_assert(
    std::is_same_v<decltype(&ncclCommWindowDeregister), ncclResult_t (*)(ncclComm_t, ncclWindow_t)>);
#endif
