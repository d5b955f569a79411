#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <memory>

#include "block/block.hpp"
#include "executor/device/cuda/cuda_device.hpp"
#include "executor/device/cuda/kernels/column_sums.hpp"
#include "tests/executor/step_table.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;
using namespace zeroplan::executor::test;

// Under sanitizers what takes longest is run in one order.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kLongInEveryOrder = false;
#else
constexpr bool kLongInEveryOrder = true;
#endif

TEST_CASE("emulated kernels: the table, in every order of lanes") {
  using emulation::LaneOrder;
  for (const LaneOrder order : {LaneOrder::forward, LaneOrder::reverse, LaneOrder::random}) {
    emulation::set_lane_order(order, 7);
    const std::unique_ptr<Device> device = make_cuda_device({});
    for (const KernelCase& one : kernel_table()) {
      if (one.is_long() && order != LaneOrder::forward && !kLongInEveryOrder) continue;
      CAPTURE(static_cast<int>(order));
      CAPTURE(one.name);
      one.check(*device);
    }
  }
  emulation::set_lane_order(LaneOrder::forward);
}

TEST_CASE("emulated kernels: sums of columns, as gradients of biases are") {
  const std::unique_ptr<Device> device = make_cuda_device({});
  cuda::Launcher launcher;
  launcher.workspace_bytes = cuda::kKernelWorkspace;
  launcher.workspace = device->allocate(launcher.workspace_bytes, program::Space::device);
  for (const DataType type : real_types()) {
    for (const std::int64_t rows : {0, 1, 37, 1000}) {
      for (const std::int64_t columns : {1, 7, 256, 264}) {
        KernelHarness h(*device);
        const Values dy = random_values(rows * columns, 1, type);
        Values want = random_values(columns, 2);
        const Tensor db = h.upload(want, DataType::fp32);
        for (std::size_t i = 0; i < dy.size(); ++i) want[i % index(columns)] += dy[i];
        Kernel kernel;
        kernel.op = Op::matmul_weight_gradient;
        const Tensor dy_ = h.upload(dy, type);
        device->synchronize();
        cuda::add_column_sums(kernel, launcher, dy_, rows, columns, db);
        REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
        CAPTURE(rows);
        CAPTURE(columns);
        expect_close("db added", h.download(db), want, DataType::fp32);
      }
    }
  }
  device->deallocate(launcher.workspace, launcher.workspace_bytes, program::Space::device);
}
