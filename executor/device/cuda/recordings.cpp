#include "executor/device/cuda/recordings.hpp"

#include <utility>

namespace zeroplan::executor::cuda {

void Recordings::begin(cudaStream_t stream) {
  // Other threads of the process go on allocating and waiting meanwhile.
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  stream_ = stream;
}

Device::Recording Recordings::end(Flops products) {
  cudaGraph_t captured = nullptr;
  check(cudaStreamEndCapture(std::exchange(stream_, nullptr), &captured), "cudaStreamEndCapture");
  const std::unique_ptr<CUgraph_st, Destroy<cudaGraphDestroy>> graph(captured);
  cudaGraphExec_t made = nullptr;
  check(cudaGraphInstantiateWithFlags(&made, captured, 0), "cudaGraphInstantiateWithFlags");
  recorded_.push_back({Graph(made), products});
  return static_cast<Device::Recording>(recorded_.size() - 1);
}

Flops Recordings::replay(Device::Recording recording, cudaStream_t stream) const {
  const Recorded& recorded = recorded_.at(recording);
  check(cudaGraphLaunch(recorded.graph.get(), stream), "cudaGraphLaunch");
  return recorded.products;
}

}  // namespace zeroplan::executor::cuda
