#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "planner/units.hpp"

// The ground floor: data types and the instruction set, of which step programs are made. What is said of an
// instruction (its operands and their sizes, what it moves, what kind it is) is its row in table.hpp.
namespace zeroplan::program {

enum class DataType : std::uint8_t { fp32, fp16, bf16, int32, uint8 };
inline constexpr std::size_t kDataTypes = 5;
std::string_view name_of(DataType type);

constexpr Bytes bytes_of(DataType type) {
  switch (type) {
    case DataType::fp32:
    case DataType::int32:
      return 4;
    case DataType::fp16:
    case DataType::bf16:
      return 2;
    case DataType::uint8:
      return 1;
  }
  return 0;
}

enum class Space : std::uint8_t { device, host };

using BufferId = std::uint16_t;
inline constexpr BufferId kNoBuffer = 0xffff;

// Who takes part in a collective: an index into StepProgram::groups.
using GroupId = std::uint8_t;
inline constexpr GroupId kNoGroup = 0xff;

// What an instruction occupies while it runs.
enum class Stream : std::uint8_t {
  compute,        // kernels, and what they wait for
  communication,  // collectives beside the kernels, and what adds what they brought
  tensor,         // tensor-parallel collectives beside the kernel that follows them
  to_host,        // copies over the link, a direction each
  to_device,
  host,   // the processors of the host: the optimizer under offload
  input,  // the next micro-batches
};
inline constexpr std::size_t kStreams = 7;
std::string_view name_of(Stream stream);

enum class Phase : std::uint8_t { setup, forward, backward, step };
std::string_view name_of(Phase phase);

// The instruction set; table.hpp says of each what its dims and operands are and what it does with them.
enum class Op : std::uint8_t {
  // structure
  repeat,
  end_repeat,
  phase,
  wait_for_all,
  // memory
  acquire,
  release,
  acquire_all,
  release_all,
  // data movement
  load_batch,
  fill_zero,
  copy,
  accumulate,
  copy_to_host,
  copy_to_device,
  accumulate_host,
  // forward
  embedding_forward,
  norm_forward,
  matmul,
  rotary_forward,
  attention_forward,
  attention_scores,
  softmax_forward,
  dropout_forward,
  attention_values,
  activation_forward,
  residual_add,
  cross_entropy_maximum,
  cross_entropy_exponent,
  cross_entropy_loss,
  route_tokens,
  combine_tokens,
  // backward
  cross_entropy_backward,
  matmul_input_gradient,
  matmul_weight_gradient,
  residual_backward,
  activation_backward,
  attention_row_dot,
  attention_backward,
  attention_values_backward,
  dropout_backward,
  softmax_backward,
  attention_scores_backward,
  rotary_backward,
  norm_backward,
  embedding_backward,
  combine_backward,
  route_backward,
  // step
  gradient_norm,
  gradient_to_fp32,
  optimizer_update,
  scale_update,
  // collectives
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
};
inline constexpr std::size_t kOps = static_cast<std::size_t>(Op::broadcast) + 1;
std::string_view name_of(Op op);

// One operand: the instance of `buffer` for layer (register + layer_offset) and, where it has one for each micro-batch in
// flight, for iteration (register + iteration_offset).
struct Operand {
  BufferId buffer = kNoBuffer;
  std::int8_t layer_offset = 0;
  std::int8_t iteration_offset = 0;
};

enum class ActivationKind : std::uint32_t {
  gelu,
  gelu_tanh,
  silu,
  relu,
  gated_gelu,
  gated_gelu_tanh,
  gated_silu,
  gated_relu
};
constexpr bool is_gated(ActivationKind kind) { return kind >= ActivationKind::gated_gelu; }

enum Flag : std::uint8_t {
  kRecomputed = 1,  // forward work done a second time
  kOverwrite = 2,   // output is set, not added to
  kMaximum = 4,     // all_reduce takes the maximum instead of the sum
};

inline constexpr std::size_t kMaxOperands = 6;

struct Instruction {
  Op op = Op::phase;
  GroupId group = kNoGroup;
  Stream stream = Stream::compute;
  std::uint8_t flags = 0;
  std::uint32_t extra = 0;
  std::array<std::int64_t, 4> dims{};
  std::array<Operand, kMaxOperands> operands{};  // absent ones have kNoBuffer
};
static_assert(sizeof(Instruction) == 64, "one cache line each");

// Fields of the `scalars` buffer, fp32. The first are summed over data-parallel ranks, those behind the loss
// over tensor-parallel ranks. The squared norm of the gradients is summed in parts, each a multiple of its
// own power of two, so that the sum over ranks is exact and the norm does not depend on how gradients are
// divided.
inline constexpr std::int64_t kNormParts = 10;
enum class Scalar : std::uint8_t {
  loss,
  overflow,
  norm_parts,
  loss_scale = norm_parts + kNormParts,
  good_steps,
  steps,
  squared_norm,  // set from its parts by scale_update
};
inline constexpr Elements kScalars = 32;

}  // namespace zeroplan::program
