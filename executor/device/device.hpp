#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "executor/tensor.hpp"

namespace zeroplan::executor {

// Elements [begin, end) of a vector.
struct ElementRange {
  Elements begin = 0, end = 0;
};

// Which weights decay: all, or matrices and not biases and norms.
enum class Decayed : std::uint8_t { all, matrices };

// What kernels need beside their operands: the same for a whole step.
struct StepSettings {
  std::int64_t tokens_per_step = 1;  // of all ranks and micro-batches: the loss is the mean over them
  std::int64_t step = 1;             // of this update, from 1: Adam's bias correction
  float learning_rate = 0;
  float beta1 = 0.9F, beta2 = 0.999F, epsilon = 1e-8F;  // Adam (arXiv 1412.6980)
  float weight_decay = 0;                               // decoupled (AdamW, arXiv 1711.05101)
  Decayed decayed = Decayed::matrices;
  float clip_norm = 0;              // of the global gradient norm; 0: none
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
};

// Where a rank's memory is and its kernels run. Two implementations: cpu/ and cuda/ (a shared object opened
// on demand). Work on one stream runs in order, and streams run beside each other where the device can; host code sees
// results after synchronize(). One thread issues.
class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;
  // What whoever reads a measurement of this device must know, a sentence or two; empty where there is nothing.
  virtual std::string note() const { return {}; }

  // One block for a rank's arena; its contents mean nothing. Throws DeviceError with the size when there is not so much.
  virtual std::byte* allocate(Bytes bytes, program::Space space) = 0;
  virtual void deallocate(std::byte* block, Bytes bytes, program::Space space) = 0;

  // Runs every instruction from fill_zero to scale_update (planner/instructions/table.hpp says what each does). Throws
  // DeviceError for an instruction or a type that the device does not have.
  // `settings` and what the operands point to must last until the stream is past it.
  virtual void execute(const Kernel& kernel, const StepSettings& settings, program::Stream stream) = 0;

  // Runs work of the host in the stream's order: what communicators do that use the host's processors. There,
  // execute() on the same stream runs at once.
  virtual void run_on_host(program::Stream stream, std::function<void()> work) = 0;

  // Events order streams: `wait` holds back what follows on `stream` until what was on `event`'s stream is
  // done.
  using Event = std::uint64_t;
  virtual Event record(program::Stream stream) = 0;
  virtual void wait(program::Stream stream, Event event) = 0;
  // Throws what work on a stream threw first; wait() may too.
  virtual void synchronize() = 0;
  // Waits until nothing runs any more, whether or not something threw: before memory is given back.
  virtual void drain() noexcept = 0;

  // Floating-point operations, 2 m n k, of all matrix products that ran so far: counted where they are
  // computed, not from the instructions. Any thread may ask.
  virtual Flops product_flops() const = 0;

  // Memory the device holds outside the arena: conversion buffers, library workspaces.
  virtual Bytes workspace_bytes() const = 0;
};

}  // namespace zeroplan::executor
