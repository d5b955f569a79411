#include "executor/device/cuda/card.hpp"
#include "executor/device/cuda/cuda_device.hpp"
#include "executor/module_interface.hpp"

extern "C" zeroplan::executor::Device* zeroplan_make_device(
    const zeroplan::executor::DeviceOptions& options) {
  return zeroplan::executor::make_cuda_device({.ordinal = options.index, .threads = options.threads})
      .release();
}

extern "C" int zeroplan_count_devices() { return zeroplan::executor::cuda::count_cards(); }
