#include "executor/communicator/devices/shared_card_planes.hpp"
#include "executor/device/cuda/card.hpp"
#include "executor/device/cuda/cuda_device.hpp"
#include "executor/module_interface.hpp"

extern "C" zeroplan::executor::Device* zeroplan_make_device(
    const zeroplan::executor::DeviceOptions& options) {
  return zeroplan::executor::make_cuda_device(
             {.ordinal = options.index, .threads = options.threads, .source = options.source})
      .release();
}

extern "C" int zeroplan_count_devices() { return zeroplan::executor::cuda::count_cards(); }

extern "C" void zeroplan_make_shared_card_planes(zeroplan::executor::ControlPlane& world,
                                                 zeroplan::executor::Device& device,
                                                 std::span<const zeroplan::program::Group> groups,
                                                 zeroplan::executor::DataPlanes& planes) {
  planes = zeroplan::executor::make_shared_card_planes(world, device, groups);
}
