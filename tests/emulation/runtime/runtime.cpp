// The CUDA runtime of the emulation. A first version: everything runs at once, when it is queued.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>

#include "runtime/memory.hpp"
#include "runtime/queue.hpp"

struct CUstream_st {
  int device = 0;
};
struct CUevent_st {
  std::chrono::steady_clock::time_point at{};
};

namespace zeroplan::emulation {

namespace {

struct Engine {
  std::mutex mutex;
  Memory memory;
};

Engine& engine() {
  static Engine the;
  return the;
}

thread_local int current_device = 0;

}  // namespace

cudaError_t enqueue(cudaStream_t, const char*, std::span<const Range>, std::function<void()> run,
                    std::function<bool()> ready) {
  while (ready && !ready()) {
  }
  run();
  return cudaSuccess;
}

int device_of(cudaStream_t stream) { return stream != nullptr ? stream->device : current_device; }

}  // namespace zeroplan::emulation

using zeroplan::emulation::current_device;
using zeroplan::emulation::engine;
using zeroplan::emulation::host;

extern "C" {
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 8;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int) {
  *value = attr == cudaDevAttrComputeCapabilityMajor         ? 9
           : attr == cudaDevAttrComputeCapabilityMinor       ? 0
           : attr == cudaDevAttrMultiProcessorCount          ? 4
           : attr == cudaDevAttrMaxSharedMemoryPerBlockOptin ? 227 * 1024
                                                             : 1024;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::lock_guard lock(engine().mutex);
  *total = std::size_t{16} << 30;
  *free = *total - engine().memory.used(current_device);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "cudaError"; }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
cudaError_t cudaMalloc(void** devPtr, std::size_t size) {
  const std::lock_guard lock(engine().mutex);
  *devPtr = engine().memory.allocate(size, current_device);
  return *devPtr != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* devPtr) {
  const std::lock_guard lock(engine().mutex);
  return devPtr == nullptr || engine().memory.release(devPtr, false) ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaHostAlloc(void** pHost, std::size_t size, unsigned int) {
  const std::lock_guard lock(engine().mutex);
  *pHost = engine().memory.allocate_pinned(size, current_device);
  return *pHost != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* ptr) {
  const std::lock_guard lock(engine().mutex);
  return ptr == nullptr || engine().memory.release(ptr, true) ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaMemcpyAsync(void* dst, const void* src, std::size_t count, cudaMemcpyKind, cudaStream_t) {
  std::memmove(host(dst), host(src), count);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* devPtr, int value, std::size_t count, cudaStream_t) {
  std::memset(host(devPtr), value, count);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned int, int) {
  *pStream = new CUstream_st{current_device};
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned int) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->at = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  *ms = std::chrono::duration<float, std::milli>(end->at - start->at).count();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t fn, void* userData) {
  fn(userData);
  return cudaSuccess;
}
}
