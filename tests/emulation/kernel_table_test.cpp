#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <string_view>

#include "block/block.hpp"
#include "executor/device/cuda/kernels.hpp"
#include "executor/device/cuda/kernels/column_sums.hpp"
#include "executor/error.hpp"
#include "tests/executor/step_table.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;
using namespace zeroplan::executor::test;

namespace {

using Entry = void (*)(const Kernel&, const cuda::Launcher&);

// nullptr: not a kernel of ours.
Entry entry_of(Op op) {
  switch (op) {
    case Op::fill_zero:
      return cuda::fill_zero;
    case Op::copy:
      return cuda::copy;
    case Op::accumulate:
      return cuda::accumulate;
    case Op::embedding_forward:
      return cuda::embedding_forward;
    case Op::embedding_backward:
      return cuda::embedding_backward;
    case Op::norm_forward:
      return cuda::norm_forward;
    case Op::norm_backward:
      return cuda::norm_backward;
    case Op::rotary_forward:
      return cuda::rotary_forward;
    case Op::rotary_backward:
      return cuda::rotary_backward;
    case Op::activation_forward:
      return cuda::activation_forward;
    case Op::activation_backward:
      return cuda::activation_backward;
    case Op::residual_add:
      return cuda::residual_add;
    case Op::cross_entropy_maximum:
      return cuda::cross_entropy_maximum;
    case Op::cross_entropy_exponent:
      return cuda::cross_entropy_exponent;
    case Op::cross_entropy_loss:
      return cuda::cross_entropy_loss;
    case Op::cross_entropy_backward:
      return cuda::cross_entropy_backward;
    case Op::gradient_norm:
      return cuda::gradient_norm;
    case Op::gradient_to_fp32:
      return cuda::gradient_to_fp32;
    case Op::scale_update:
      return cuda::scale_update;
    case Op::optimizer_update:
      return cuda::optimizer_update;
    default:
      return nullptr;
  }
}

void check(cudaError_t error) {
  if (error != cudaSuccess) throw DeviceError(cudaGetErrorString(error));
}

// Memory and kernels on the emulated card's default stream, and no more than the table needs.
class KernelDevice final : public Device {
 public:
  KernelDevice() {
    void* memory = nullptr;
    check(cudaMalloc(&memory, static_cast<std::size_t>(cuda::kKernelWorkspace)));
    launcher_.workspace = static_cast<std::byte*>(memory);
    launcher_.workspace_bytes = cuda::kKernelWorkspace;
  }
  ~KernelDevice() override { (void)cudaFree(launcher_.workspace); }
  KernelDevice(const KernelDevice&) = delete;
  KernelDevice& operator=(const KernelDevice&) = delete;

  std::string name() const override { return "kernels"; }
  DeviceCapabilities capabilities() const override { return {}; }
  bool executes(Op op) const override { return entry_of(op) != nullptr; }
  std::byte* allocate(Bytes bytes, program::Space) override {
    void* memory = nullptr;
    check(cudaMalloc(&memory, static_cast<std::size_t>(bytes)));
    return static_cast<std::byte*>(memory);
  }
  void deallocate(std::byte* block, Bytes, program::Space) override { check(cudaFree(block)); }
  void upload(std::byte* to, std::span<const std::byte> from, program::Stream) override {
    check(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, nullptr));
    synchronize();
  }
  void download(std::span<std::byte> to, const std::byte* from) override {
    check(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, nullptr));
    synchronize();
  }
  void execute(const Kernel& kernel, program::Stream, const Watch&) override {
    entry_of(kernel.op)(kernel, launcher_);
  }
  void run_on_host(program::Stream, const HostWork& work, const Watch&) override {
    work.run(work.self, work.what);
  }
  Event make_event() override { return 0; }
  void record(Event, program::Stream) override {}
  void wait(program::Stream, Event, double*) override {}
  void synchronize() override { check(cudaDeviceSynchronize()); }
  void drain() noexcept override { (void)cudaDeviceSynchronize(); }
  Flops product_flops() const override { return 0; }
  Bytes workspace_bytes() const override { return launcher_.workspace_bytes; }
  const cuda::Launcher& launcher() const { return launcher_; }

 private:
  cuda::Launcher launcher_;
};

bool has_kernels(const KernelCase& one) {
  const std::string_view name = one.name;
  return !name.starts_with("matmul") && !name.starts_with("flash attention") &&
         !name.starts_with("materialized attention");
}

}  // namespace

TEST_CASE("emulated kernels: the table, in every order of lanes") {
  using emulation::LaneOrder;
  for (const LaneOrder order : {LaneOrder::forward, LaneOrder::reverse, LaneOrder::random}) {
    emulation::set_lane_order(order, 7);
    KernelDevice device;
    for (const KernelCase& one : kernel_table()) {
      if (!has_kernels(one)) continue;
      CAPTURE(static_cast<int>(order));
      CAPTURE(one.name);
      one.check(device);
    }
  }
  emulation::set_lane_order(LaneOrder::forward);
}

TEST_CASE("emulated kernels: sums of columns, as gradients of biases are") {
  KernelDevice device;
  for (const DataType type : real_types()) {
    for (const std::int64_t rows : {0, 1, 37, 1000}) {
      for (const std::int64_t columns : {1, 7, 256, 264}) {
        KernelHarness h(device);
        const Values dy = random_values(rows * columns, 1, type);
        Values want = random_values(columns, 2);
        const Tensor db = h.upload(want, DataType::fp32);
        for (std::size_t i = 0; i < dy.size(); ++i) want[i % index(columns)] += dy[i];
        Kernel kernel;
        kernel.op = Op::matmul_weight_gradient;
        cuda::add_column_sums(kernel, device.launcher(), h.upload(dy, type), rows, columns, db);
        CAPTURE(rows);
        CAPTURE(columns);
        expect_close("db added", h.download(db), want, DataType::fp32);
      }
    }
  }
}
