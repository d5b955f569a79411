#include "executor/device/cuda/handles.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "executor/error.hpp"

namespace zeroplan::executor::cuda {

StreamHandle make_stream(int priority) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
        "cudaStreamCreateWithPriority");
  return StreamHandle(stream);
}

EventHandle make_event(bool timed) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming),
        "cudaEventCreateWithFlags");
  return EventHandle(event);
}

DeviceMemory allocate_device(Bytes bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, static_cast<std::size_t>(std::max<Bytes>(1, bytes)));
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    std::size_t free = 0, total = 0;
    (void)cudaMemGetInfo(&free, &total);
    throw DeviceError(fmt::format("cuda device: cannot allocate {} bytes: {} of the GPU's {} bytes are free",
                                  bytes, free, total));
  }
  check(error, "cudaMalloc");
  return DeviceMemory(static_cast<std::byte*>(memory));
}

PinnedMemory allocate_pinned(Bytes bytes) {
  void* memory = nullptr;
  const cudaError_t error =
      cudaHostAlloc(&memory, static_cast<std::size_t>(std::max<Bytes>(1, bytes)), cudaHostAllocPortable);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw DeviceError(fmt::format("cuda device: cannot pin {} bytes of the host's memory", bytes));
  }
  check(error, "cudaHostAlloc");
  return PinnedMemory(static_cast<std::byte*>(memory));
}

}  // namespace zeroplan::executor::cuda
