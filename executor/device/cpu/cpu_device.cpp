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
#include <type_traits>
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

using Function = void (*)(const Kernel& kernel, cpu::Workers& workers);

// A kernel takes what it needs of its settings and its threads.
template <auto kernel_function>
void call(const Kernel& kernel, cpu::Workers& workers) {
  constexpr auto kFunction = kernel_function;
  using Type = decltype(kernel_function);
  static const StepSettings defaults;
  const StepSettings& settings = kernel.settings != nullptr ? *kernel.settings : defaults;
  if constexpr (std::is_invocable_v<Type, const Kernel&, const StepSettings&, cpu::Workers&>) {
    kFunction(kernel, settings, workers);
  } else if constexpr (std::is_invocable_v<Type, const Kernel&, cpu::Workers&>) {
    (void)settings;
    kFunction(kernel, workers);
  } else {
    kFunction(kernel, settings);
  }
}

// nullptr: this device does not have the instruction.
Function function_of(Op op) {
  switch (op) {
    case Op::fill_zero:
      return call<cpu::fill_zero>;
    case Op::copy:
    case Op::copy_to_host:
    case Op::copy_to_device:
      return call<cpu::copy>;
    case Op::accumulate:
    case Op::accumulate_host:
      return call<cpu::accumulate>;
    case Op::embedding_forward:
      return call<cpu::embedding_forward>;
    case Op::embedding_backward:
      return call<cpu::embedding_backward>;
    case Op::norm_forward:
      return call<cpu::norm_forward>;
    case Op::norm_backward:
      return call<cpu::norm_backward>;
    case Op::matmul:
      return call<cpu::matmul>;
    case Op::matmul_input_gradient:
      return call<cpu::matmul_input_gradient>;
    case Op::matmul_weight_gradient:
      return call<cpu::matmul_weight_gradient>;
    case Op::rotary_forward:
      return call<cpu::rotary_forward>;
    case Op::rotary_backward:
      return call<cpu::rotary_backward>;
    case Op::attention_forward:
      return call<cpu::attention_forward>;
    case Op::attention_row_dot:
      return call<cpu::attention_row_dot>;
    case Op::attention_backward:
      return call<cpu::attention_backward>;
    case Op::attention_scores:
      return call<cpu::attention_scores>;
    case Op::softmax_forward:
      return call<cpu::softmax_forward>;
    case Op::attention_values:
      return call<cpu::attention_values>;
    case Op::attention_values_backward:
      return call<cpu::attention_values_backward>;
    case Op::softmax_backward:
      return call<cpu::softmax_backward>;
    case Op::attention_scores_backward:
      return call<cpu::attention_scores_backward>;
    case Op::activation_forward:
      return call<cpu::activation_forward>;
    case Op::activation_backward:
      return call<cpu::activation_backward>;
    case Op::residual_add:
      return call<cpu::residual_add>;
    case Op::cross_entropy_maximum:
      return call<cpu::cross_entropy_maximum>;
    case Op::cross_entropy_exponent:
      return call<cpu::cross_entropy_exponent>;
    case Op::cross_entropy_loss:
      return call<cpu::cross_entropy_loss>;
    case Op::cross_entropy_backward:
      return call<cpu::cross_entropy_backward>;
    case Op::gradient_norm:
      return call<cpu::gradient_norm>;
    case Op::gradient_to_fp32:
      return call<cpu::gradient_to_fp32>;
    case Op::optimizer_update:
      return call<cpu::optimizer_update>;
    case Op::scale_update:
      return call<cpu::scale_update>;
    default:
      return nullptr;
  }
}

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

  bool executes(Op op) const override { return function_of(op) != nullptr; }

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
  const auto& launch = *static_cast<const Kernel*>(kernel);
  const Function function = function_of(launch.op);
  if (function == nullptr) cpu::refuse(launch, "this device does not have the instruction");
  cpu::check_operands(launch);
  function(launch, *static_cast<cpu::Workers*>(workers));
}

}  // namespace

std::unique_ptr<Device> make_cpu_device(const CpuOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

}  // namespace zeroplan::executor
