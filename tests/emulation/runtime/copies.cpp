#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/capture.hpp"

// Memory of devices and of the host, and what copies and fills it.

using zeroplan::emulation::captures;
using zeroplan::emulation::Engine;
using zeroplan::emulation::enqueue;
using zeroplan::emulation::host;
using zeroplan::emulation::kGranularity;
using zeroplan::emulation::Memory;
using zeroplan::emulation::Range;
using zeroplan::emulation::release_call;
using zeroplan::emulation::runtime_call;

namespace {

enum class Place : std::uint8_t { device, pinned, pageable };

Place place_of(const void* pointer) {
  Engine& the = zeroplan::emulation::engine();
  const Engine::Lock lock(the.mutex);
  const std::optional<Memory::Found> found = the.memory.find(pointer);
  if (found) return found->allocation.pinned ? Place::pinned : Place::device;
  return zeroplan::emulation::host_distance(pointer) != 0 ? Place::device : Place::pageable;
}

bool agrees(cudaMemcpyKind kind, Place to, Place from) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return to != Place::device && from != Place::device;
    case cudaMemcpyHostToDevice:
      return to == Place::device && from != Place::device;
    case cudaMemcpyDeviceToHost:
      return to != Place::device && from == Place::device;
    case cudaMemcpyDeviceToDevice:
      return to == Place::device && from == Place::device;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

// What of them is memory that the runtime knows.
std::vector<Range> known(Place to, Place from, void* dst, const void* src, std::size_t bytes) {
  std::vector<Range> ranges;
  if (to != Place::pageable) ranges.push_back({dst, bytes, false, true});
  if (from != Place::pageable) ranges.push_back({src, bytes, true, false});
  return ranges;
}

bool captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

cudaError_t release(const char* call, void* pointer, bool pinned) {
  return release_call(call, [&](Engine& the, Engine::Lock& lock) {
    if (pointer == nullptr) return cudaSuccess;
    if (captures(the)) return cudaErrorStreamCaptureUnsupported;
    const std::optional<Memory::Found> found = the.memory.find(pointer);
    if (!found || found->begin != reinterpret_cast<std::uintptr_t>(pointer) ||
        found->allocation.pinned != pinned) {
      the.problem(std::string(call) + " of what is no such memory");
      return cudaErrorInvalidValue;
    }
    // It waits for the device, as CUDA's does.
    the.reach_all(lock, found->allocation.device);
    the.accesses.forget(found->begin, found->allocation.bytes);
    (void)the.memory.release(pointer, pinned);
    return the.device_error(the.current_device());
  });
}

}  // namespace

extern "C" {

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return runtime_call("cudaMemGetInfo", [&](Engine& the, Engine::Lock&) {
    const int device = the.current_device();
    *total = the.gpu(device).capacity;
    *free = *total - std::min(*total, the.gpu(device).context_bytes + the.memory.used(device));
    return cudaSuccess;
  });
}

cudaError_t cudaMalloc(void** devPtr, std::size_t size) {
  return runtime_call("cudaMalloc", [&](Engine& the, Engine::Lock&) {
    *devPtr = nullptr;
    if (captures(the)) return cudaErrorStreamCaptureUnsupported;
    if (size == 0) return cudaSuccess;
    const int device = the.current_device();
    const std::size_t used = the.gpu(device).context_bytes + the.memory.used(device);
    const std::size_t needed = (size + kGranularity - 1) / kGranularity * kGranularity;
    if (needed < size || used > the.gpu(device).capacity || needed > the.gpu(device).capacity - used)
      return cudaErrorMemoryAllocation;
    *devPtr = the.memory.allocate(size, device);
    return *devPtr != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}

cudaError_t cudaHostAlloc(void** pHost, std::size_t size, unsigned int) {
  return runtime_call("cudaHostAlloc", [&](Engine& the, Engine::Lock&) {
    *pHost = nullptr;
    if (captures(the)) return cudaErrorStreamCaptureUnsupported;
    if (size == 0) return cudaSuccess;
    *pHost = the.memory.allocate_pinned(size, the.current_device());
    return *pHost != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}

cudaError_t cudaFree(void* devPtr) { return release("cudaFree", devPtr, false); }
cudaError_t cudaFreeHost(void* ptr) { return release("cudaFreeHost", ptr, true); }

// Memory that is not pinned is read before the call returns, and is written when it returns.
cudaError_t cudaMemcpyAsync(void* dst, const void* src, std::size_t count, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const Place to = place_of(dst), from = place_of(src);
  if (!agrees(kind, to, from)) return cudaErrorInvalidValue;
  const bool pageable = to == Place::pageable || from == Place::pageable;
  if (pageable && captured(stream)) return cudaErrorStreamCaptureUnsupported;
  const std::vector<Range> ranges = known(to, from, dst, src, count);
  std::function<void()> run;
  if (from == Place::pageable) {
    const auto* begin = static_cast<const std::byte*>(src);
    run = [to = host(dst), bytes = std::vector<std::byte>(begin, begin + count)] {
      std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(to));
    };
  } else {
    run = [to = host(dst), from = host(src), count] {
      if (count > 0) std::memmove(to, from, count);
    };
  }
  const cudaError_t error = enqueue(stream, "cudaMemcpyAsync", ranges, std::move(run));
  return error == cudaSuccess && to == Place::pageable ? cudaStreamSynchronize(stream) : error;
}

cudaError_t cudaMemsetAsync(void* devPtr, int value, std::size_t count, cudaStream_t stream) {
  const std::vector<Range> ranges{{devPtr, count, false, true}};
  return enqueue(stream, "cudaMemsetAsync", ranges, [to = host(devPtr), value, count] {
    if (count > 0) std::memset(to, value, count);
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* ptr) {
  return runtime_call("cudaPointerGetAttributes", [&](Engine& the, Engine::Lock&) {
    const std::optional<Memory::Found> found = the.memory.find(ptr);
    *attributes = {};
    attributes->device = -1;
    if (!found) return cudaSuccess;
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): CUDA gives it back so
    void* pointer = const_cast<void*>(ptr);
    attributes->type = found->allocation.pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    attributes->device = found->allocation.device;
    attributes->devicePointer = pointer;
    attributes->hostPointer = found->allocation.pinned ? pointer : nullptr;
    return cudaSuccess;
  });
}

}  // extern "C"
