#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "executor/device/cuda/handles.hpp"
#include "executor/device/device.hpp"

namespace zeroplan::executor::cuda {

// Kernels that were captured as graphs of CUDA. A graph's kernels are launched by one call, in the order of the capture.
class Recordings {
 public:
  // What is issued to the stream from here on is captured. CUDA then takes no queries and no waits from this thread.
  void begin(cudaStream_t stream);
  // `products`: floating-point operations of the products that were captured.
  Device::Recording end(Flops products);
  // Returns the operations of the products in it.
  Flops replay(Device::Recording recording, cudaStream_t stream) const;
  bool is_open() const { return stream_ != nullptr; }
  void clear() { recorded_.clear(); }

 private:
  using Graph = std::unique_ptr<CUgraphExec_st, Destroy<cudaGraphExecDestroy>>;
  struct Recorded {
    Graph graph;
    Flops products = 0;
  };

  std::vector<Recorded> recorded_;
  cudaStream_t stream_ = nullptr;  // that is captured
};

}  // namespace zeroplan::executor::cuda
