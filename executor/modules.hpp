#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "executor/communicator/communicator.hpp"
#include "executor/device/block_source.hpp"
#include "executor/device/device.hpp"
#include "executor/rank.hpp"

// Devices and launchers that need more than the C++ library (BLAS, MPI, CUDA) are shared objects beside the
// program, opened when they are asked for: planning starts fast and needs none of them. They are looked for
// in the program's folder, the one above it, and ../lib/zeroplan. All throw NotPossible, with the places,
// when one cannot be opened or is of another build.
namespace zeroplan::executor {

struct DeviceOptions {
  int threads = 1;       // of the host, for this device
  int index = 0;         // of several of a kind
  BlockSource source{};  // of blocks of the device's memory
};

// `name`: cpu or cuda.
std::unique_ptr<Device> make_device(const std::string& name, const DeviceOptions& options);

// How many of a kind this process sees; `name`: cuda.
int count_devices(const std::string& name);

// As make_nccl_planes (executor/communicator/nccl), for a device of CUDA.
DataPlanes make_nccl_module_planes(ControlPlane& world, Device& device,
                                   std::span<const program::Group> groups, std::chrono::milliseconds timeout);
// Blocks that these planes move fastest.
BlockSource nccl_module_blocks();
// As make_shared_card_planes (executor/communicator/devices), for devices of CUDA that are one GPU.
DataPlanes make_shared_card_module_planes(ControlPlane& world, Device& device,
                                          std::span<const program::Group> groups);

// Which part of this host a rank is to have: the `index`-th of `count` equal ones, for `threads` threads.
struct HostShare {
  std::int64_t index = 0, count = 1;
  int threads = 1;
};

// Binds the calling thread to its share of this host's cores, and with it the threads that it starts later;
// the cores of a share are near each other (hwloc). Returns what it did in words, "pinned to 4 cores"; or
// nothing, and binds nothing, where there are fewer cores than ranks or processors than threads, a launcher or
// the user has bound the thread already, the system refuses, or this program was built without hwloc.
std::string pin_to_share(const HostShare& share);

// As run_mpi_rank (executor/communicator/mpi), with `ranks` that the launcher says it started.
void run_mpi_module(std::chrono::milliseconds timeout, std::int64_t ranks,
                    const std::function<void(Communicator&)>& rank_main);
bool has_mpi_module();

// Why the module `name` (cpu, mpi, cuda, nccl) cannot be opened, in a sentence; empty where it can, and then it is open.
std::string module_problem(const std::string& name);

}  // namespace zeroplan::executor
