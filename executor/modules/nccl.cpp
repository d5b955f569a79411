#include "executor/communicator/nccl/nccl_planes.hpp"
#include "executor/module_interface.hpp"

extern "C" void zeroplan_make_nccl_planes(zeroplan::executor::ControlPlane& world,
                                          zeroplan::executor::Device& device,
                                          std::span<const zeroplan::program::Group> groups,
                                          std::chrono::milliseconds timeout,
                                          zeroplan::executor::DataPlanes& planes) {
  planes = zeroplan::executor::make_nccl_planes(world, device, groups, {.timeout = timeout});
}

extern "C" void zeroplan_nccl_blocks(zeroplan::executor::BlockSource& source) {
  source = zeroplan::executor::nccl_blocks();
}
