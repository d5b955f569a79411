#pragma once

#include <optional>
#include <string>
#include <vector>

// Which build of the CUDA device a machine can take. CUDA 13 has no code for GPUs before Turing, and needs a driver of its own
// time: so there are two modules, and the driver and the card decide.
namespace zeroplan::executor {

// What the driver says; versions as CUDA writes them, 1000 major + 10 minor.
struct CudaDriver {
  int version = 0;        // the newest CUDA that it runs, e.g. 12080
  std::vector<int> sm{};  // of each GPU that it shows, 10 major + minor
};

// Asks libcuda.so.1. nullopt where there is none or it does not start.
std::optional<CudaDriver> ask_cuda_driver();

// A build of the modules for CUDA: zeroplan_cuda.so and zeroplan_nccl.so, or others.
struct CudaBuild {
  std::string suffix{};                  // of the modules' names: none, or _sm70
  std::vector<std::string> libraries{};  // opened before the modules, which are not linked with them
};

// The build for GPU `index`, which is one of the driver's. Throws NotPossible, with what to do, where there is none for it: a
// card before Volta, or a driver that is too old.
CudaBuild choose_cuda_build(const CudaDriver& driver, int index);

}  // namespace zeroplan::executor
