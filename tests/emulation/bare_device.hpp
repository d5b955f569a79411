#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "executor/device/block_source.hpp"
#include "executor/device/cuda/cuda_streams.hpp"
#include "executor/error.hpp"

namespace zeroplan::executor::test {

// As little of a CUDA device as data planes and products need: memory, streams and events, and kernels by a function.
class BareDevice final : public Device, public CudaStreams {
 public:
  using Run = std::function<void(const Kernel&, cudaStream_t)>;

  explicit BareDevice(int ordinal = 0, Run run = {}) : ordinal_(ordinal), run_(std::move(run)) {
    check(cudaSetDevice(ordinal));
    for (cudaStream_t& stream : streams_)
      check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
  }
  ~BareDevice() override {
    drain();
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
    for (const std::span<std::byte> block : blocks_) give_back_(block.data());
  }
  BareDevice(const BareDevice&) = delete;
  BareDevice& operator=(const BareDevice&) = delete;

  cudaStream_t start(program::Stream stream, const Watch&) override {
    throw_failure();
    return on(stream);
  }
  void finish(program::Stream, const Watch&) override {}
  void fail(std::exception_ptr failure) override {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }
  int ordinal() const override { return ordinal_; }
  std::vector<std::span<std::byte>> source_blocks() const override { return blocks_; }
  // A block of the source, until the device is given up; nullptr where there is none.
  std::byte* take_block(const BlockSource& source, Bytes bytes) {
    std::byte* block = source.allocate != nullptr ? source.allocate(bytes) : nullptr;
    if (block != nullptr) blocks_.emplace_back(block, static_cast<std::size_t>(bytes));
    give_back_ = source.deallocate;
    return block;
  }

  std::string name() const override { return "bare device"; }
  DeviceCapabilities capabilities() const override { return {.runs_beside = true}; }
  bool executes(program::Op) const override { return static_cast<bool>(run_); }
  std::byte* allocate(Bytes bytes, program::Space) override {
    void* block = nullptr;
    check(cudaMalloc(&block, static_cast<std::size_t>(bytes)));
    return static_cast<std::byte*>(block);
  }
  void deallocate(std::byte* block, Bytes, program::Space) override { check(cudaFree(block)); }
  void upload(std::byte* to, std::span<const std::byte> from, program::Stream stream) override {
    check(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, on(stream)));
    check(cudaStreamSynchronize(on(stream)));
  }
  void download(std::span<std::byte> to, const std::byte* from) override {
    check(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, on(program::Stream::compute)));
    check(cudaStreamSynchronize(on(program::Stream::compute)));
  }
  void execute(const Kernel& kernel, program::Stream stream, const Watch&) override {
    run_(kernel, on(stream));
  }
  void run_on_host(program::Stream, const HostWork&, const Watch&) override {
    throw std::logic_error("a bare device runs no work of the host");
  }
  Event make_event() override {
    check(cudaEventCreateWithFlags(&events_.emplace_back(), cudaEventDisableTiming));
    return static_cast<Event>(events_.size() - 1);
  }
  void record(Event event, program::Stream stream) override {
    check(cudaEventRecord(events_[event], on(stream)));
  }
  void wait(program::Stream stream, Event event, double*) override {
    check(cudaStreamWaitEvent(on(stream), events_[event], 0));
  }
  void synchronize() override {
    for (cudaStream_t stream : streams_) check(cudaStreamSynchronize(stream));
    throw_failure();
  }
  void drain() noexcept override {
    for (cudaStream_t stream : streams_) cudaStreamSynchronize(stream);
  }
  Flops product_flops() const override { return 0; }
  Bytes workspace_bytes() const override { return 0; }

 private:
  cudaStream_t on(program::Stream stream) const { return streams_[static_cast<std::size_t>(stream)]; }
  static void check(cudaError_t error) {
    if (error != cudaSuccess) throw DeviceError(cudaGetErrorString(error));
  }
  void throw_failure() {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }

  int ordinal_;
  Run run_;
  std::array<cudaStream_t, program::kStreams> streams_{};
  std::vector<cudaEvent_t> events_;
  std::vector<std::span<std::byte>> blocks_;
  void (*give_back_)(std::byte*) = nullptr;
  std::mutex mutex_;  // guards failure_
  std::exception_ptr failure_;
};

}  // namespace zeroplan::executor::test
