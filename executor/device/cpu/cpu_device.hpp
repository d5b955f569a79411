#pragma once

#include <memory>

#include "executor/device/device.hpp"

namespace zeroplan::executor {

struct CpuOptions {
  // Of this device; one device serves one rank. Work is divided by shape, never by the number of threads, so
  // the number does not change a bit of any result.
  int threads = 1;
};

// A rank's memory and kernels on the host's processors, with OpenBLAS for the products.
//
//   memory     anonymous pages of the operating system, zeroed, not touched before they are used, huge
//              where a block has room for some; device and host space are the same kind
//   types      fp32, fp16 and bf16 in any mixture; 16-bit operands are converted block by block, computed
//              in fp32 and rounded once, to nearest even
//   streams    copies and collectives have a thread each, which starts with their first work; all else runs on the
//              thread that issues it: execute() returns when the work is done, and its events are past
//   threads    of kernels, the device's own; OpenBLAS is set to one thread for the whole process when a device is
//              made, as its pool is one for all ranks and waits for one at a time
//   workspace  scratch of each thread, kept at the largest size a kernel asked for: for products at
//              most about 3 MiB, for attention some blocks of 64 x 256 and, in 16-bit types, fp32 copies of
//              one head
//   bits       gradients of parameters: the whole sum of a call is formed apart and added with one
//              rounding, so accumulating micro-batches on one rank and adding ranks' gradients in order give
//              the same bits in fp32
//
// Absent: token routing (experts), which throws a DeviceError that names the instruction, as does an operand that is missing or too small.
//
// Layouts where the instruction set leaves a choice:
//   LayerNorm statistics   {mean, 1/deviation} of each row in turn; RMSNorm's: 1/root-mean-square
//   rotary embedding       element i turns with element i + head_dim / 2 (Llama's order), by position x
//                          rotary_base^(-2 i / head_dim)
//   log-sum-exp, row dots  {tokens, heads}
//   scores                 {sequences, heads, sequence, sequence}
//   GELU                   exact, and its tanh form (arXiv 1606.08415, Section 2)
//   positions              token modulo Kernel::extra, the sequence's length, in embedding_* and rotary_*
//   ignored targets        below 0: their {sum, target logit} is {0, 0}
//   skipped update         gradient_to_fp32 writes NaN everywhere when a rank had an overflow, and
//                          optimizer_update leaves alone what has a NaN gradient
// Throws DeviceError when options.threads < 1.
std::unique_ptr<Device> make_cpu_device(const CpuOptions& options);

}  // namespace zeroplan::executor
