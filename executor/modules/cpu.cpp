#include "executor/device/cpu/cpu_device.hpp"
#include "executor/device/cpu/pinning.hpp"
#include "executor/module_interface.hpp"

extern "C" zeroplan::executor::Device* zeroplan_make_device(
    const zeroplan::executor::DeviceOptions& options) {
  return zeroplan::executor::make_cpu_device({.threads = options.threads}).release();
}

extern "C" void zeroplan_pin_to_share(const zeroplan::executor::HostShare& share, std::string& what) {
  what = zeroplan::executor::cpu::pin_to_share(share);
}
