#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "executor/device/device.hpp"

namespace zeroplan::benchmarks {

// A device that measures how long each kind of instruction takes. Requires a device that is done when
// execute() returns, as the CPU's is.
class TimedDevice final : public executor::Device {
 public:
  using SecondsByOp = std::array<double, 256>;  // indexed by program::Op

  // `seconds` is added to and must live longer than the device.
  TimedDevice(std::unique_ptr<executor::Device> device, SecondsByOp& seconds)
      : device_(std::move(device)), seconds_(seconds) {}

  std::string name() const override { return device_->name(); }
  std::byte* allocate(Bytes bytes, program::Space space) override { return device_->allocate(bytes, space); }
  void deallocate(std::byte* block, Bytes bytes, program::Space space) override {
    device_->deallocate(block, bytes, space);
  }
  executor::DeviceCapabilities capabilities() const override { return device_->capabilities(); }
  bool executes(program::Op op) const override { return device_->executes(op); }
  void upload(std::byte* to, std::span<const std::byte> from, program::Stream stream) override {
    device_->upload(to, from, stream);
  }
  void download(std::span<std::byte> to, const std::byte* from) override { device_->download(to, from); }
  void execute(const executor::Kernel& kernel, program::Stream stream,
               const executor::Watch& watch) override {
    const auto start = std::chrono::steady_clock::now();
    device_->execute(kernel, stream, watch);
    seconds_[static_cast<std::size_t>(kernel.op)] +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  Event make_event() override { return device_->make_event(); }
  void record(Event event, program::Stream stream) override { device_->record(event, stream); }
  void wait(program::Stream stream, Event event, double* held) override {
    device_->wait(stream, event, held);
  }
  void synchronize() override { device_->synchronize(); }
  void drain() noexcept override { device_->drain(); }
  void run_on_host(program::Stream stream, const executor::HostWork& work,
                   const executor::Watch& watch) override {
    device_->run_on_host(stream, work, watch);
  }
  Flops product_flops() const override { return device_->product_flops(); }
  Bytes workspace_bytes() const override { return device_->workspace_bytes(); }

 private:
  std::unique_ptr<executor::Device> device_;
  SecondsByOp& seconds_;
};

}  // namespace zeroplan::benchmarks
