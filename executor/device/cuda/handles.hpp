#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "executor/device/cuda/errors.hpp"
#include "planner/units.hpp"

// Streams, events and memory of CUDA that are given back by themselves.
namespace zeroplan::executor::cuda {

template <auto destroy>
struct Destroy {
  template <class Handle>
  void operator()(Handle* handle) const {
    (void)destroy(handle);  // after a sticky error it fails, as everything does
  }
};

using StreamHandle = std::unique_ptr<CUstream_st, Destroy<cudaStreamDestroy>>;
using EventHandle = std::unique_ptr<CUevent_st, Destroy<cudaEventDestroy>>;
using DeviceMemory = std::unique_ptr<std::byte, Destroy<cudaFree>>;
using PinnedMemory = std::unique_ptr<std::byte, Destroy<cudaFreeHost>>;

// Of the calling thread's device. Streams do not meet the default stream. A lower number is a higher priority.
StreamHandle make_stream(int priority);
EventHandle make_event(bool timed);

// Throw DeviceError with the size, and what is free, where there is not so much.
DeviceMemory allocate_device(Bytes bytes);
PinnedMemory allocate_pinned(Bytes bytes);

}  // namespace zeroplan::executor::cuda
