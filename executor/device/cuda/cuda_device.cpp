#include "executor/device/cuda/cuda_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "executor/device/cuda/card.hpp"
#include "executor/device/cuda/cuda_streams.hpp"
#include "executor/device/cuda/dispatch.hpp"
#include "executor/device/cuda/host_calls.hpp"
#include "executor/device/cuda/recordings.hpp"
#include "executor/device/cuda/upload_ring.hpp"
#include "executor/device/cuda/watches.hpp"
#include "executor/device/operand_checks.hpp"
#include "executor/error.hpp"

namespace zeroplan::executor {

namespace {

using program::Space;
using program::Stream;

// So often the issuing thread looks at what is done.
constexpr std::uint64_t kIssuesPerLook = 64;
// And while it waits: at once at first, as a step of a small model lasts no longer than a sleep.
constexpr int kLooksBeforeSleep = 1000;
constexpr std::chrono::microseconds kBetweenLooks{20};

class CudaDevice final : public Device, public CudaStreams {
 public:
  explicit CudaDevice(const CudaOptions& options)
      : card_(cuda::open_card(options.ordinal)),
        source_(options.source),
        host_calls_(options.threads, failure_) {
    int least = 0, greatest = 0;
    cuda::check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      const auto stream = static_cast<Stream>(i);
      const bool urgent = stream == Stream::communication || stream == Stream::tensor;
      streams_[i] = cuda::make_stream(urgent ? greatest : least);
    }
  }

  ~CudaDevice() override { drain(); }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  std::string name() const override {
    return fmt::format("cuda:{} ({}, compute capability {}.{})", card_.ordinal, card_.name, card_.sm / 10,
                       card_.sm % 10);
  }
  std::string note() const override {
    if (card_.clock_khz == 0) return {};
    return fmt::format("The GPU's highest clock is {} MHz.", card_.clock_khz / 1000);
  }
  std::string pci_address() const override { return card_.pci_address; }
  DeviceCapabilities capabilities() const override {
    return {.host_reaches_memory = false, .runs_beside = true};
  }
  bool executes(program::Op op) const override { return cuda::executes(op); }

  std::byte* allocate(Bytes bytes, Space space) override;
  void deallocate(std::byte* block, Bytes bytes, Space space) override;
  void upload(std::byte* to, std::span<const std::byte> from, Stream stream) override;
  void download(std::span<std::byte> to, const std::byte* from) override;
  void execute(const Kernel& kernel, Stream stream, const Watch& watch) override;
  void run_on_host(Stream stream, const HostWork& work, const Watch& watch) override;

  bool can_record(const Kernel& kernel) const override {
    return !cuda::HostCalls::takes(kernel, host_blocks_);
  }
  void begin_recording(Stream stream) override;
  Recording end_recording() override;
  void replay(Recording recording, Stream stream, const Watch& watch) override;
  void forget_recordings() override { recordings_.clear(); }

  Event make_event() override {
    events_.push_back(cuda::make_event(false));
    return static_cast<Event>(events_.size() - 1);
  }
  void record(Event event, Stream stream) override {
    cuda::check(cudaEventRecord(events_[event].get(), of(stream)), "cudaEventRecord");
  }
  void wait(Stream stream, Event event, double* held) override;
  void synchronize() override;
  void drain() noexcept override;

  Flops product_flops() const override { return issued_products() + host_calls_.product_flops(); }
  program::DeviceMemoryUse memory_use() const override;
  Bytes workspace_bytes() const override {
    Bytes bytes = 0;
    for (const auto& [stream, workspace] : workspaces_) bytes += workspace_bytes_of(stream);
    return bytes;
  }

  cudaStream_t start(Stream stream, const Watch& watch) override;
  void finish(Stream stream, const Watch& watch) override;
  void fail(std::exception_ptr failure) override { failure_.note(std::move(failure)); }
  int ordinal() const override { return card_.ordinal; }
  std::vector<std::span<std::byte>> source_blocks() const override { return source_blocks_; }

 private:
  cudaStream_t of(Stream stream) const { return streams_[static_cast<std::size_t>(stream)].get(); }
  cuda::Launcher launcher(Stream stream);
  // Products are on the compute stream.
  Bytes workspace_bytes_of(Stream stream) const {
    const Bytes of_products = stream == Stream::compute ? cuda::Products::workspace_bytes(card_.sm) : 0;
    return std::max(cuda::kKernelWorkspace, of_products);
  }
  void issue(const Kernel& kernel, Stream stream) {
    cuda::dispatch(kernel, launcher(stream), products_);
    attention_flops_.fetch_add(cuda::attention_flops(kernel), std::memory_order_relaxed);
  }
  // Keeps a kernel for the recording; two that can be one are recorded as one.
  void keep(const Kernel& kernel, Stream stream);
  void keep_last();
  // Of all kernels so far, in graphs as often as those were replayed.
  Flops issued_products() const {
    return products_.flops() + attention_flops_.load(std::memory_order_relaxed);
  }
  // The calling thread's device of CUDA is this one from here on.
  void use() const { cuda::check(cudaSetDevice(card_.ordinal), "cudaSetDevice"); }
  // Until nothing runs any more; what went wrong instead.
  cudaError_t finish_all();

  cuda::Card card_;
  BlockSource source_;
  std::vector<std::span<std::byte>> source_blocks_;
  cuda::Failure failure_;
  std::array<cuda::StreamHandle, program::kStreams> streams_;
  cuda::StreamHandle downloads_ = cuda::make_stream(0);
  std::vector<cuda::EventHandle> events_;
  cuda::Watches watches_;
  std::uint64_t issued_ = 0;
  cuda::UploadRing uploads_;
  cuda::HostCalls host_calls_;
  cuda::Recordings recordings_;
  Flops recorded_products_ = 0;   // counted before the recording that is made
  const Kernel* kept_ = nullptr;  // the last of the recording, which waits for the next one
  Stream kept_on_ = Stream::compute;
  std::vector<std::span<const std::byte>> host_blocks_;
  cuda::Products products_;
  std::atomic<Flops> attention_flops_ = 0;
  std::map<Stream, cuda::DeviceMemory> workspaces_;  // of the streams that ran kernels
};

std::byte* CudaDevice::allocate(Bytes bytes, Space space) {
  if (bytes < 0) throw DeviceError(fmt::format("cuda device: cannot allocate {} bytes", bytes));
  use();
  if (space == Space::device) {
    if (std::byte* block = source_.allocate != nullptr ? source_.allocate(bytes) : nullptr) {
      source_blocks_.emplace_back(block, static_cast<std::size_t>(bytes));
      return block;
    }
    return cuda::allocate_device(bytes).release();
  }
  std::byte* block = cuda::allocate_pinned(bytes).release();
  host_blocks_.emplace_back(block, static_cast<std::size_t>(std::max<Bytes>(1, bytes)));
  return block;
}

void CudaDevice::deallocate(std::byte* block, Bytes, Space space) {
  (void)cudaSetDevice(card_.ordinal);
  const auto is_block = [&](const auto& known) { return known.data() == block; };
  if (space == Space::device) {
    if (std::erase_if(source_blocks_, is_block) > 0) {
      source_.deallocate(block);
    } else {
      (void)cudaFree(block);
    }
    return;
  }
  std::erase_if(host_blocks_, is_block);
  (void)cudaFreeHost(block);
}

void CudaDevice::upload(std::byte* to, std::span<const std::byte> from, Stream stream) {
  use();
  uploads_.upload(to, from, of(stream));
}

void CudaDevice::download(std::span<std::byte> to, const std::byte* from) {
  use();
  uploads_.hold(downloads_.get());
  cuda::check(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDefault, downloads_.get()),
              "cudaMemcpyAsync");
  cuda::check(cudaStreamSynchronize(downloads_.get()), "cudaStreamSynchronize");
}

cuda::Launcher CudaDevice::launcher(Stream stream) {
  cuda::DeviceMemory& workspace = workspaces_[stream];
  const Bytes bytes = workspace_bytes_of(stream);
  if (!workspace) workspace = cuda::allocate_device(bytes);
  return {.stream = of(stream),
          .multiprocessors = card_.multiprocessors,
          .sm = card_.sm,
          .workspace = workspace.get(),
          .workspace_bytes = bytes};
}

cudaStream_t CudaDevice::start(Stream stream, const Watch& watch) {
  failure_.rethrow();
  use();
  if (++issued_ % kIssuesPerLook == 0) watches_.look();
  watches_.begin(stream, of(stream), watch);
  return of(stream);
}

void CudaDevice::finish(Stream stream, const Watch& watch) { watches_.end(stream, of(stream), watch); }

void CudaDevice::execute(const Kernel& kernel, Stream stream, const Watch& watch) {
  check_operands_of("cuda", kernel);
  if (recordings_.is_open()) return keep(kernel, stream);
  const cudaStream_t on = start(stream, watch);
  if (cuda::HostCalls::takes(kernel, host_blocks_)) {
    host_calls_.run(kernel, host_blocks_, on);
  } else {
    issue(kernel, stream);
  }
  finish(stream, watch);
}

void CudaDevice::run_on_host(Stream stream, const HostWork& work, const Watch& watch) {
  host_calls_.run(work, start(stream, watch));
  finish(stream, watch);
}

void CudaDevice::begin_recording(Stream stream) {
  failure_.rethrow();
  use();
  launcher(stream);  // its workspace is there before: a capture allocates nothing
  recorded_products_ = issued_products();
  recordings_.begin(of(stream));
}

void CudaDevice::keep(const Kernel& kernel, Stream stream) {
  if (kept_ != nullptr && kept_on_ == stream &&
      cuda::dispatch_joined(*kept_, kernel, launcher(stream), products_)) {
    kept_ = nullptr;
    return;
  }
  keep_last();
  kept_ = &kernel;
  kept_on_ = stream;
}

void CudaDevice::keep_last() {
  if (kept_ != nullptr) issue(*std::exchange(kept_, nullptr), kept_on_);
}

Device::Recording CudaDevice::end_recording() {
  keep_last();
  // They are counted when they run.
  const Flops products = issued_products() - recorded_products_;
  products_.count(-products);
  return recordings_.end(products);
}

void CudaDevice::replay(Recording recording, Stream stream, const Watch& watch) {
  const cudaStream_t on = start(stream, watch);
  products_.count(recordings_.replay(recording, on));
  finish(stream, watch);
}

program::DeviceMemoryUse CudaDevice::memory_use() const {
  use();
  std::size_t free = 0, total = 0;
  cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return {.total = static_cast<Bytes>(total), .used = static_cast<Bytes>(total - free)};
}

void CudaDevice::wait(Stream stream, Event event, double* held) {
  watches_.begin_wait(stream, of(stream), held);
  cuda::check(cudaStreamWaitEvent(of(stream), events_[event].get(), 0), "cudaStreamWaitEvent");
  watches_.end_wait(stream, of(stream), held);
}

cudaError_t CudaDevice::finish_all() {
  for (const cuda::StreamHandle& stream : streams_) {
    for (int looks = 0;; ++looks) {
      const cudaError_t state = cudaStreamQuery(stream.get());
      if (state == cudaSuccess) break;
      if (state != cudaErrorNotReady) return state;
      watches_.look();
      if (looks > kLooksBeforeSleep) std::this_thread::sleep_for(kBetweenLooks);
    }
  }
  return cudaSuccess;
}

void CudaDevice::synchronize() {
  use();
  const cudaError_t error = finish_all();
  if (error == cudaSuccess && !failure_.any()) {
    watches_.settle();
    host_calls_.forget();
    return;
  }
  watches_.fail();
  failure_.rethrow();
  cuda::check(error, "an instruction failed");
}

void CudaDevice::drain() noexcept {
  (void)cudaSetDevice(card_.ordinal);
  for (const cuda::StreamHandle& stream : streams_) (void)cudaStreamSynchronize(stream.get());
  (void)cudaGetLastError();
  watches_.forget();
  host_calls_.forget();
}

}  // namespace

std::unique_ptr<Device> make_cuda_device(const CudaOptions& options) {
  return std::make_unique<CudaDevice>(options);
}

}  // namespace zeroplan::executor
