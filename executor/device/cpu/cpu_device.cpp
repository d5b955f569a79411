#include "executor/device/cpu/cpu_device.hpp"

#include <cblas.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

#include "executor/device/cpu/execute.hpp"
#include "executor/device/cpu/streams.hpp"
#include "executor/device/cpu/vector_level.hpp"
#include "executor/error.hpp"

namespace zeroplan::executor {

using program::Op;

namespace {

int checked_threads(int threads) {
  if (threads < 1)
    throw DeviceError(fmt::format("cpu device: {} threads: there must be at least one", threads));
  return threads;
}

// The system gives whole pages, and none for nothing.
std::size_t mapped_bytes(Bytes bytes) { return static_cast<std::size_t>(std::max<Bytes>(1, bytes)); }

constexpr Bytes kLeastForHugePages = 16 * kMiB;

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const CpuOptions& options) : workers_(checked_threads(options.threads)) {
    openblas_set_num_threads(1);
  }

  // OpenBLAS's configuration begins "OpenBLAS 0.3.21 "; its kernels are those of the core that it chose.
  std::string name() const override {
    const std::string_view library = openblas_get_config();
    const std::size_t end = library.find(' ', library.find(' ') + 1);
    return fmt::format("cpu ({}, {} kernels)", library.substr(0, end), openblas_get_corename());
  }

  std::string note() const override {
    const char* forced = std::getenv("OPENBLAS_CORETYPE");
    return cpu::forced_kernels_note(forced == nullptr ? "" : forced, openblas_get_corename(),
                                    cpu::level_of_processor());
  }

  std::byte* allocate(Bytes bytes, program::Space) override {
    if (bytes < 0) throw DeviceError(fmt::format("cpu device: cannot allocate {} bytes", bytes));
    void* block =
        mmap(nullptr, mapped_bytes(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) {
      throw DeviceError(fmt::format("cpu device: cannot allocate {} bytes: {}", bytes, std::strerror(errno)));
    }
    // A step's products miss fewer addresses in huge pages, and a refusal costs nothing but that. What is smaller
    // would be resident to the end of its page where only some of it is used.
    if (bytes >= kLeastForHugePages) (void)madvise(block, mapped_bytes(bytes), MADV_HUGEPAGE);
    return static_cast<std::byte*>(block);
  }

  void deallocate(std::byte* block, Bytes bytes, program::Space) override {
    munmap(block, mapped_bytes(bytes));
  }

  DeviceCapabilities capabilities() const override {
    return {.host_reaches_memory = true, .runs_beside = true};
  }

  bool executes(Op op) const override { return cpu::executes(op); }

  void upload(std::byte* to, std::span<const std::byte> from, program::Stream stream) override {
    if (cpu::Streams::has_thread(stream)) synchronize();
    std::copy(from.begin(), from.end(), to);
  }

  void download(std::span<std::byte> to, const std::byte* from) override {
    std::copy_n(from, to.size(), to.begin());
  }

  void execute(const Kernel& kernel, program::Stream stream, const Watch& watch) override {
    const bool has_thread = cpu::Streams::has_thread(stream);
    cpu::Workers& workers = has_thread ? of_stream_[static_cast<std::size_t>(stream)] : workers_;
    streams_.run(stream, {&CpuDevice::run, &workers, &kernel}, watch);
  }

  void run_on_host(program::Stream stream, const HostWork& work, const Watch& watch) override {
    streams_.run(stream, work, watch);
  }

  Event make_event() override { return streams_.make_event(); }
  void record(Event event, program::Stream stream) override { streams_.record(event, stream); }
  void wait(program::Stream stream, Event event, double* held) override {
    streams_.wait(stream, event, held);
  }
  void synchronize() override { streams_.synchronize(); }
  void drain() noexcept override { streams_.drain(); }

  // Only kernels on the issuing thread multiply.
  Flops product_flops() const override { return workers_.product_flops(); }

  Bytes workspace_bytes() const override {
    Bytes bytes = workers_.scratch_bytes();
    for (const cpu::Workers& workers : of_stream_) bytes += workers.scratch_bytes();
    return bytes;
  }

 private:
  static void run(void* workers, const void* kernel);

  cpu::Workers workers_;
  std::array<cpu::OneWorker, program::kStreams>
      of_stream_;         // of streams that have a thread: it is the only one
  cpu::Streams streams_;  // ends before what its work uses
};

void CpuDevice::run(void* workers, const void* kernel) {
  cpu::execute(*static_cast<const Kernel*>(kernel), *static_cast<cpu::Workers*>(workers));
}

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

}  // namespace zeroplan::executor
