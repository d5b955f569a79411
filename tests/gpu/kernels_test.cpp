#include <doctest/doctest.h>

#include <memory>
#include <set>
#include <string>

#include "executor/device/cuda/cuda_device.hpp"
#include "tests/executor/step_table.hpp"

using namespace zeroplan::executor;
using namespace zeroplan::executor::test;

TEST_CASE("GPU: the table of kernels") {
  const std::unique_ptr<Device> device = make_cuda_device({});
  MESSAGE(device->name());
  for (const KernelCase& one : kernel_table()) {
    CAPTURE(one.name);
    one.check(*device);
  }
}

// The table has the small shapes of each first: for tools under which a kernel takes a hundred times as long.
TEST_CASE("GPU: the first case of each kernel and type") {
  const std::unique_ptr<Device> device = make_cuda_device({});
  std::set<std::string> seen;
  for (const KernelCase& one : kernel_table()) {
    if (!seen.insert(one.name).second) continue;
    CAPTURE(one.name);
    one.check(*device);
  }
}
