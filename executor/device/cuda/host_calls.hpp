#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "executor/device/cpu/workers.hpp"
#include "executor/device/cuda/failure.hpp"
#include "executor/device/cuda/handles.hpp"
#include "executor/device/device.hpp"

namespace zeroplan::executor::cuda {

// What a device's streams run on the processors of the host: work that was handed in, and instructions whose operands are
// the host's, as the optimizer's are under offload.
class HostCalls {
 public:
  // `threads` of the host, for instructions. What work throws is noted in `failure`, and what follows is passed over.
  HostCalls(int threads, Failure& failure) : threads_(threads), failure_(failure) {}

  void run(const HostWork& work, cudaStream_t stream);

  // Whether an instruction runs here: it has operands in memory of the host, and what it has in the device's is as small
  // as scalars are. Others reach memory of the host from the device, over the link.
  static bool takes(const Kernel& kernel, const std::vector<std::span<const std::byte>>& host_blocks);
  // What is in the device's memory is copied to the host before, and back behind it where it is written.
  void run(const Kernel& kernel, const std::vector<std::span<const std::byte>>& host_blocks,
           cudaStream_t stream);

  // Nothing runs any more.
  void forget() {
    calls_.clear();
    kernels_.clear();
  }
  // Of products that instructions made here.
  Flops product_flops() const { return workers_ ? workers_->product_flops() : 0; }

 private:
  struct Call {
    HostCalls* self = nullptr;
    HostWork work;
  };

  static void enter(void* call);
  static void execute(void* self, const void* kernel);
  std::byte* mirror_of(cudaStream_t stream);

  int threads_;
  Failure& failure_;
  std::deque<Call> calls_;  // whose places stay where they are
  std::deque<Kernel> kernels_;
  std::map<cudaStream_t, PinnedMemory>
      mirrors_;         // of the device's small operands; a stream uses its own in order
  std::mutex working_;  // CUDA may call for two streams at a time
  std::unique_ptr<cpu::Workers> workers_;
};

}  // namespace zeroplan::executor::cuda
