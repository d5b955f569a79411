#include "executor/device/cpu/cpu_device.hpp"
#include "executor/module_interface.hpp"

extern "C" zeroplan::executor::Device* zeroplan_make_device(
    const zeroplan::executor::DeviceOptions& options) {
  return zeroplan::executor::make_cpu_device({.threads = options.threads}).release();
}
