#pragma once

#include "planner/describe/machine/cluster.hpp"
#include "planner/describe/machine/device_architecture.hpp"
#include "planner/describe/plan/plan.hpp"
#include "planner/program/step_program.hpp"

// How long one kernel takes on a device: a roofline of matrix units and memory, with what keeps kernels below
// it.
namespace zeroplan::predict {

// What of a device and an engine times depend on; seconds, bytes and operations per second.
struct KernelRates {
  const describe::DeviceArchitecture* facts = &describe::other_architecture();  // never null
  const describe::CalibratedRates* measured = nullptr;  // come before all else; part of the device
  double matmul_flops_per_s = 0;                        // large products reach this
  double unaligned_flops_per_s = 0;  // 16-bit products whose m, n or k is no multiple of 8; 0: as the others
  double attention_flops_per_s = 0;  // fused attention, of the products that causality needs
  double memory_bytes_per_s = 0;     // streaming kernels reach this
  double multiprocessors = 1;
  double shortest_kernel_s = 0;  // of those that were measured, none takes less
  double kernel_gap_s = 0;       // between the end of a kernel and the start of the next
  double host_issue_s = 0;       // of the host, to issue one kernel
  double slowdown = 0;           // of kernels by a collective beside them, over the collective's time
  bool one_stream = false;       // nothing runs beside anything else
  std::int64_t fused_softmax_batches = 1;  // as Engine's
  double elementwise_factor = 1;           // Engine's, on this device
  double loss_factor = 1;                  // time of the loss over that of a fused one
};

// Dense peak of the units that a plan in this precision multiplies with, TFLOPS; fp32 is plain fp32, not
// TF32.
const std::optional<describe::Figure>& peak_tflops(const describe::Device& device,
                                                   describe::Precision precision);

// From the device's profile and, for what nobody measured on the device, its architecture's
// (docs/equations.md). A processor is not described: matmul_flops_per_s is 0 then.
KernelRates kernel_rates(const describe::Device& device, const describe::Plan& plan);

// What whole steps reach of the products' attainable rate, relative to an A100; in kernel_rates already.
double sustained_fraction(const describe::Device& device);

// Seconds of a kernel on the device, without its gap. Structure, memory and collectives take none.
double kernel_seconds(const KernelRates& rates, const program::StepProgram& program,
                      const program::Instruction& instruction);

// Kernels that the engine runs for an instruction.
double kernel_launches(const KernelRates& rates, const program::Instruction& instruction);

// Bytes that a kernel reads and writes at least.
double moved_bytes(const program::StepProgram& program, const program::Instruction& instruction);

}  // namespace zeroplan::predict
