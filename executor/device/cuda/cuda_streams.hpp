#pragma once

#include <cuda_runtime_api.h>

#include <exception>
#include <span>
#include <stdexcept>
#include <vector>

#include "executor/device/device.hpp"

namespace zeroplan::executor {

// What a data plane of CUDA devices needs of its rank's device: to issue work of its own to one of the streams. A device
// of CUDA is one of these beside a Device.
class CudaStreams {
 public:
  // The stream, after what `watch` wants noted where a piece of work begins. finish() with the same arguments follows,
  // behind what was issued in between. Both throw DeviceError.
  virtual cudaStream_t start(program::Stream stream, const Watch& watch) = 0;
  virtual void finish(program::Stream stream, const Watch& watch) = 0;
  // Any thread: what synchronize(), and all that is issued from now on, throw. The first call counts.
  virtual void fail(std::exception_ptr failure) = 0;
  // The card, as cudaSetDevice takes it.
  virtual int ordinal() const = 0;
  // The blocks that it has from its source (block_source.hpp).
  virtual std::vector<std::span<std::byte>> source_blocks() const = 0;

 protected:
  CudaStreams() = default;
  CudaStreams(const CudaStreams&) = default;
  CudaStreams& operator=(const CudaStreams&) = default;
  ~CudaStreams() = default;
};

// Throws std::logic_error where `device` is not one of CUDA.
inline CudaStreams& cuda_streams_of(Device& device) {
  auto* streams = dynamic_cast<CudaStreams*>(&device);
  if (streams == nullptr) throw std::logic_error(device.name() + " is no device of CUDA");
  return *streams;
}

}  // namespace zeroplan::executor
