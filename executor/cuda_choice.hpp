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

struct CudaModule {
  std::string name;                      // of the module: cuda or cuda_sm70
  std::vector<std::string> libraries{};  // opened before it, as it is not linked with them
};

// The module for GPU `index`. Throws NotPossible, with what to do, where there is none for it: a card before Volta, one of
// another kind than the driver is for, or no such GPU.
CudaModule choose_cuda_module(const CudaDriver& driver, int index);

}  // namespace zeroplan::executor
