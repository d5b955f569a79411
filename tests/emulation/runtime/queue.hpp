#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

// What the emulated libraries (kernels, cuBLASLt, NCCL) need of the emulated CUDA runtime: a place in a stream, and
// the memory behind a device pointer.
namespace zeroplan::emulation {

// Of memory that an operation touches, as the program sees the pointer.
struct Range {
  const void* begin = nullptr;
  std::size_t bytes = 0;
  bool reads = false, writes = false;
};

// Queues `run` on the stream; a null stream is the current device's default stream. `run` is called once, later, on a
// thread of the emulation's choice; it reaches device memory through host(). What it throws becomes a sticky error of
// its device (cudaErrorLaunchFailure) and a problem of the test (machine.hpp).
// `ready`, where given, is asked whenever the operation is at the head of its stream: it does not run before that is
// true, as a collective that waits for the other ranks. It may be asked often, by any thread, and must not call the
// runtime.
// Returns what CUDA's launch would.
cudaError_t enqueue(cudaStream_t stream, const char* name, std::span<const Range> ranges,
                    std::function<void()> run, std::function<bool()> ready = {});

// Where the program's device pointers are, and how far from there the memory is.
std::ptrdiff_t host_distance(const void* device_pointer);

// The same memory where code of the host may reach it; pointers that are not into device memory are unchanged.
template <class T>
T* host(T* device_pointer) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the two are no parts of one object
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(device_pointer) +
                              static_cast<std::uintptr_t>(host_distance(device_pointer)));
}

// The device of the stream, and of the calling thread for a null stream.
int device_of(cudaStream_t stream);

}  // namespace zeroplan::emulation
