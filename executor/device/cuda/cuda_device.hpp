#pragma once

#include <memory>

#include "executor/device/block_source.hpp"
#include "executor/device/device.hpp"

namespace zeroplan::executor {

struct CudaOptions {
  int ordinal = 0;  // as CUDA numbers the GPUs that CUDA_VISIBLE_DEVICES leaves
  int threads = 1;  // of the host, for instructions whose operands are offloaded to it
  BlockSource source{};
};

// A rank's memory and kernels on an NVIDIA GPU.
//
//   memory     blocks of the source or of cudaMalloc for the device, of pinned pages for the host
//   streams    one of CUDA for each of the program's, those of collectives with the highest priority; kernels, copies and
//              collectives are issued and not waited for
//   products   cuBLASLt, on the compute stream; sums in fp32, not TF32
//   host       instructions whose operands are in memory of the host, but for scalars, run on its processors with the CPU
//              device's kernels, in the stream's order; others read and write it over the link
//   times      by events of CUDA behind each instruction
//   errors     an error that CUDA reports late comes out of synchronize(), or of the next call, as a DeviceError; where it
//              was is told as what was seen to end on each stream before
//
// Throws NotPossible where there is no driver, no such GPU, or one that there are no kernels for.
std::unique_ptr<Device> make_cuda_device(const CudaOptions& options);

}  // namespace zeroplan::executor
