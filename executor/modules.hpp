#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "executor/communicator/communicator.hpp"
#include "executor/device/device.hpp"

// Devices and launchers that need more than the C++ library (BLAS, MPI, CUDA) are shared objects beside the
// program, opened when they are asked for: planning starts fast and needs none of them. They are looked for
// in the program's folder, the one above it, and ../lib/zeroplan. All throw NotPossible, with the places,
// when one cannot be opened.
namespace zeroplan::executor {

struct DeviceOptions {
  int threads = 1;  // of the host, for this device
};

// `name`: cpu.
std::unique_ptr<Device> make_device(const std::string& name, const DeviceOptions& options);

// As run_mpi_rank (executor/communicator/mpi), with `ranks` that the launcher says it started.
void run_mpi_module(std::chrono::milliseconds timeout, std::int64_t ranks,
                    const std::function<void(Communicator&)>& rank_main);
bool has_mpi_module();

}  // namespace zeroplan::executor
