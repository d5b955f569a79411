#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "executor/dropout.hpp"
#include "executor/tensor.hpp"
#include "planner/program/measurement.hpp"

namespace zeroplan::executor {

// Elements [begin, end) of a vector.
struct ElementRange {
  Elements begin = 0, end = 0;
};

// Which weights decay: all, or matrices and not biases and norms.
enum class Decayed : std::uint8_t { all, matrices };

// What kernels need beside their operands.
struct StepSettings {
  // Of a step. Kernels do not read these two: what follows of them is in the scalars (step_scalars.hpp).
  std::int64_t step = 1;  // of this update, from 1: Adam's bias correction
  float learning_rate = 0;

  // The same for all steps.
  std::int64_t tokens_per_step = 1;  // of all ranks and micro-batches: the loss is the mean over them
  float beta1 = 0.9F, beta2 = 0.999F, epsilon = 1e-8F;  // Adam (arXiv 1412.6980)
  float weight_decay = 0;                               // decoupled (AdamW, arXiv 1711.05101)
  Decayed decayed = Decayed::matrices;
  float clip_norm = 0;              // of the global gradient norm; 0: none
  float dropout = 0.1F;             // the share of elements that instructions with a mask drop, below 1
  std::uint64_t dropout_seed = 0;   // of the masks
  program::ModelConstants model{};  // of the program that runs; set by the interpreter
  bool dynamic_loss_scale =
      false;  // fp16: halved after an overflow, doubled after `scale_window` steps without one
  std::int64_t scale_window = 1000;
};

// One instruction with its operands resolved to memory. Absent operands have no data.
struct Kernel {
  program::Op op = program::Op::copy;
  std::uint8_t flags = 0;
  std::uint32_t extra = 0;
  std::int64_t iteration = 0;
  std::int64_t layer = 0;         // windows and rotary bases differ between layers
  bool counts_replicated = true;  // gradient_norm: this tensor-parallel rank counts what all hold alike
  std::array<std::int64_t, 4> dims{};
  std::array<Tensor, program::kMaxOperands> operands{};
  std::span<const ElementRange> undecayed{};  // optimizer_update: of the owned elements, rising
  const StepSettings* settings = nullptr;     // nullptr: the defaults
  Tensor scalars{};  // optimizer_update, and what draws a mask: with the step's settings
  DrawnMask mask{};  // that it draws
};

// Work of the host that a stream runs: run(self, what). A plain value, so that issuing it allocates nothing.
struct HostWork {
  void (*run)(void* self, const void* what) = nullptr;
  void* self = nullptr;
  const void* what = nullptr;
};

// How far a device has come with what it was given, in the numbers that its issuer gave along; 0 is none. Any thread may
// read it.
struct Progress {
  std::array<std::atomic<std::uint64_t>, program::kStreams> finished{};  // the last of each stream
  std::atomic<std::uint64_t> failed = 0;  // the first, where the device knows it

  void clear() {
    for (auto& last : finished) last.store(0, std::memory_order_relaxed);
    failed.store(0, std::memory_order_relaxed);
  }
  void fail(std::uint64_t number) {
    std::uint64_t none = 0;
    failed.compare_exchange_strong(none, number, std::memory_order_relaxed);
  }
};

// Where the issuer of work wants to be told of it; empty: nowhere. Complete after synchronize().
struct Watch {
  float* seconds = nullptr;  // that it took on the device
  Progress* progress = nullptr;
  std::uint64_t number = 0;
};

struct DeviceCapabilities {
  // Code of the host reaches the device's memory, so that communicators that use the host's processors can move it.
  bool host_reaches_memory = false;
  // Some streams run beside each other.
  bool runs_beside = false;
};

// Where a rank's memory is and its kernels run. Implementation: cpu/ (a shared object that is opened on demand). Work on
// one stream runs in order, and streams run beside each other where the device can. One thread issues. What code of the
// host sees of the device's memory it gets by download().
class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;
  // What whoever reads a measurement of this device must know, a sentence or two; empty where there is nothing.
  virtual std::string note() const { return {}; }
  virtual DeviceCapabilities capabilities() const = 0;
  // Of a device on the PCI bus, as sysfs spells it: "0000:1b:00.0"; empty of others.
  virtual std::string pci_address() const { return {}; }
  // Whether it has the instruction, one of those from fill_zero to scale_update (planner/instructions/table.hpp).
  virtual bool executes(program::Op op) const = 0;

  // One block for a rank's arena; its contents mean nothing. Memory of the host is pinned where the device copies it
  // faster so. Throws DeviceError with the size when there is not so much.
  virtual std::byte* allocate(Bytes bytes, program::Space space) = 0;
  virtual void deallocate(std::byte* block, Bytes bytes, program::Space space) = 0;

  // Copies from memory of the host into the device's, in the stream's order. `from` may be changed once it returns.
  virtual void upload(std::byte* to, std::span<const std::byte> from, program::Stream stream) = 0;
  // Copies from the device's memory. Requires that nothing that was issued still writes there.
  virtual void download(std::span<std::byte> to, const std::byte* from) = 0;

  // Runs an instruction that executes() knows. Throws DeviceError for operands that it cannot have.
  // `kernel` and what it points to must last until the stream is past it.
  virtual void execute(const Kernel& kernel, program::Stream stream, const Watch& watch) = 0;

  // Runs work of the host in the stream's order: what communicators do that use the host's processors. There,
  // what is issued to the same stream runs at once.
  virtual void run_on_host(program::Stream stream, const HostWork& work, const Watch& watch) = 0;

  // What is executed again and again may be recorded: from begin_recording() to end_recording() execute() on that stream does
  // nothing but keep the kernel with its addresses, and replay() does what was kept, as often as asked. Nothing else is
  // asked of the device between the two. A step's kernels that can be recorded are those that can_record() says.
  using Recording = std::uint32_t;
  virtual bool can_record(const Kernel& /*kernel*/) const { return false; }
  virtual void begin_recording(program::Stream stream);
  virtual Recording end_recording();
  virtual void replay(Recording recording, program::Stream stream, const Watch& watch);
  // Of all recordings so far; requires that none runs.
  virtual void forget_recordings() {}

  // Events order streams: `wait` holds back what follows on `stream` until that is done which was on the other stream
  // when the event was recorded last; an event that was never recorded holds back nothing. Events last as long as their
  // device. The seconds that the stream was held are added to `held`, where it is given, by the time of synchronize().
  using Event = std::uint32_t;
  virtual Event make_event() = 0;
  virtual void record(Event event, program::Stream stream) = 0;
  virtual void wait(program::Stream stream, Event event, double* held) = 0;
  // Throws what work on a stream threw first; wait() may too.
  virtual void synchronize() = 0;
  // Waits until nothing runs any more, whether or not something threw: before memory is given back.
  virtual void drain() noexcept = 0;

  // Floating-point operations, 2 m n k, of all matrix products that ran so far: counted where they are
  // computed, not from the instructions. Any thread may ask.
  virtual Flops product_flops() const = 0;

  // The device's memory as its driver counts it now; all 0 where that is memory of the host.
  virtual program::DeviceMemoryUse memory_use() const { return {}; }

  // Memory the device holds outside the arena: conversion buffers, library workspaces.
  virtual Bytes workspace_bytes() const = 0;
};

}  // namespace zeroplan::executor
