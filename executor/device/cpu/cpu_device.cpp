#include "executor/device/cpu/cpu_device.hpp"

#include <cblas.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>

#include "executor/device/cpu/kernels.hpp"
#include "executor/device/cpu/operands.hpp"
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

  void execute(const Kernel& kernel, const StepSettings& settings, program::Stream stream) override {
    if (!cpu::Streams::has_thread(stream)) return run(kernel, settings, workers_);
    streams_.run(stream, [this, kernel, &settings, stream] {
      run(kernel, settings, of_stream_[static_cast<std::size_t>(stream)]);
    });
  }

  void run_on_host(program::Stream stream, std::function<void()> work) override {
    streams_.run(stream, std::move(work));
  }

  Event record(program::Stream stream) override { return streams_.record(stream); }
  void wait(program::Stream stream, Event event) override { streams_.wait(stream, event); }
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
  static void run(const Kernel& kernel, const StepSettings& settings, cpu::Workers& workers);

  cpu::Workers workers_;
  std::array<cpu::OneWorker, program::kStreams>
      of_stream_;         // of streams that have a thread: it is the only one
  cpu::Streams streams_;  // ends before what its work uses
};

void CpuDevice::run(const Kernel& kernel, const StepSettings& settings, cpu::Workers& workers) {
  cpu::check_operands(kernel);
  switch (kernel.op) {
    case Op::fill_zero:
      return cpu::fill_zero(kernel, workers);
    case Op::copy:
    case Op::copy_to_host:
    case Op::copy_to_device:
      return cpu::copy(kernel, workers);
    case Op::accumulate:
    case Op::accumulate_host:
      return cpu::accumulate(kernel, workers);
    case Op::embedding_forward:
      return cpu::embedding_forward(kernel, settings, workers);
    case Op::embedding_backward:
      return cpu::embedding_backward(kernel, settings, workers);
    case Op::norm_forward:
      return cpu::norm_forward(kernel, settings, workers);
    case Op::norm_backward:
      return cpu::norm_backward(kernel, settings, workers);
    case Op::matmul:
      return cpu::matmul(kernel, workers);
    case Op::matmul_input_gradient:
      return cpu::matmul_input_gradient(kernel, workers);
    case Op::matmul_weight_gradient:
      return cpu::matmul_weight_gradient(kernel, workers);
    case Op::rotary_forward:
      return cpu::rotary_forward(kernel, settings, workers);
    case Op::rotary_backward:
      return cpu::rotary_backward(kernel, settings, workers);
    case Op::attention_forward:
      return cpu::attention_forward(kernel, settings, workers);
    case Op::attention_row_dot:
      return cpu::attention_row_dot(kernel, settings, workers);
    case Op::attention_backward:
      return cpu::attention_backward(kernel, settings, workers);
    case Op::attention_scores:
      return cpu::attention_scores(kernel, settings, workers);
    case Op::softmax_forward:
      return cpu::softmax_forward(kernel, workers);
    case Op::attention_values:
      return cpu::attention_values(kernel, settings, workers);
    case Op::attention_values_backward:
      return cpu::attention_values_backward(kernel, settings, workers);
    case Op::softmax_backward:
      return cpu::softmax_backward(kernel, workers);
    case Op::attention_scores_backward:
      return cpu::attention_scores_backward(kernel, settings, workers);
    case Op::activation_forward:
      return cpu::activation_forward(kernel, workers);
    case Op::activation_backward:
      return cpu::activation_backward(kernel, workers);
    case Op::residual_add:
      return cpu::residual_add(kernel, workers);
    case Op::cross_entropy_maximum:
      return cpu::cross_entropy_maximum(kernel, settings, workers);
    case Op::cross_entropy_exponent:
      return cpu::cross_entropy_exponent(kernel, workers);
    case Op::cross_entropy_loss:
      return cpu::cross_entropy_loss(kernel, settings);
    case Op::cross_entropy_backward:
      return cpu::cross_entropy_backward(kernel, settings, workers);
    case Op::gradient_norm:
      return cpu::gradient_norm(kernel, workers);
    case Op::gradient_to_fp32:
      return cpu::gradient_to_fp32(kernel, settings, workers);
    case Op::optimizer_update:
      return cpu::optimizer_update(kernel, settings, workers);
    case Op::scale_update:
      return cpu::scale_update(kernel, settings);
    default:
      cpu::refuse(kernel, "this device does not have the instruction");
  }
}

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

}  // namespace zeroplan::executor
