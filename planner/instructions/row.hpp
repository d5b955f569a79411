#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "planner/instructions/instruction.hpp"
#include "planner/units.hpp"

// What a row of the instruction table is made of.
namespace zeroplan::program {

enum class Class : std::uint8_t {
  structure,   // of the program: repeats and phases
  memory,      // acquires and releases
  input,       // the next micro-batch; takes no time that is described
  kernel,      // runs where the memory of its operands is
  to_host,     // a copy or a sum over the link from device to host
  to_device,   // a copy over the link from host to device
  collective,  // over a group of ranks
};

// Where an instruction of the class runs unless the compiler says otherwise.
constexpr Stream usual_stream(Class kind) {
  switch (kind) {
    case Class::to_host:
      return Stream::to_host;
    case Class::to_device:
      return Stream::to_device;
    case Class::input:
      return Stream::input;
    default:
      return Stream::compute;
  }
}

// What bounds a kernel.
enum class Cost : std::uint8_t {
  none,               // small, or not described
  streaming,          // the bytes that it moves, in one kernel everywhere
  elementwise,        // the same, where engines without fused kernels run several
  softmax,            // elementwise, as one kernel or several by its shape
  loss,               // elementwise, over logits
  linear_product,     // 2 m n k operations
  attention_product,  // products with scores that are in memory
  fused_attention,    // products with scores that never are
};

// What the sizes of an instruction depend on. The iteration is that of the repeat around it.
struct Shape {
  std::array<std::int64_t, 4> dims{};
  std::uint32_t extra = 0;
  std::int64_t iteration = 0;
};
constexpr Shape shape_of(const Instruction& instruction) { return {instruction.dims, instruction.extra, 0}; }

using Extent = Elements (*)(const Shape&);

// ---- extents, in elements; named by the dims that they multiply ----

constexpr Elements nothing(const Shape&) { return 0; }  // not told by the dims
constexpr Elements first(const Shape& s) { return s.dims[0]; }
constexpr Elements second(const Shape& s) { return s.dims[1]; }
constexpr Elements twice_first(const Shape& s) { return 2 * s.dims[0]; }
constexpr Elements first_second(const Shape& s) { return s.dims[0] * s.dims[1]; }
constexpr Elements first_third(const Shape& s) { return s.dims[0] * s.dims[2]; }
constexpr Elements first_fourth(const Shape& s) { return s.dims[0] * s.dims[3]; }
constexpr Elements second_third(const Shape& s) { return s.dims[1] * s.dims[2]; }
constexpr Elements three(const Shape& s) { return s.dims[0] * s.dims[1] * s.dims[2]; }
constexpr Elements scalars(const Shape&) { return kScalars; }
constexpr Elements pre_activation(const Shape& s) {
  return (is_gated(static_cast<ActivationKind>(s.extra)) ? 2 : 1) * first_second(s);
}
// A vector for each position of a sequence that is there.
constexpr Elements positions(const Shape& s) { return std::min<Elements>(s.extra, s.dims[0]) * s.dims[1]; }
// Of a chunk of a vector, and up to its end.
constexpr Elements chunk_end(const Shape& s) {
  return s.iteration * s.dims[1] + std::clamp<Elements>(s.dims[0] - s.iteration * s.dims[1], 0, s.dims[1]);
}
constexpr Elements chunk(const Shape& s) { return chunk_end(s) - s.iteration * s.dims[1]; }

// Of attention: {sequences, sequence, heads, head_dim}, extra: key-value heads.
inline constexpr std::array<std::string_view, 4> kAttentionDims{"sequences", "sequence", "heads", "head_dim"};
constexpr Elements head_rows(const Shape& s) { return three(s); }
constexpr Elements context(const Shape& s) { return three(s) * s.dims[3]; }
constexpr Elements squares(const Shape& s) { return three(s) * s.dims[1]; }
constexpr Elements of_heads(const Shape& s, std::int64_t heads) {
  return first_second(s) * heads * s.dims[3];
}
constexpr Elements packed(const Shape& s) { return of_heads(s, s.dims[2] + 2 * std::int64_t{s.extra}); }
constexpr Elements query_key(const Shape& s) { return of_heads(s, s.dims[2] + std::int64_t{s.extra}); }

// Of logits: columns of this tensor-parallel rank, from first_column on; those behind `vocabulary` are padding.
inline constexpr std::array<std::string_view, 4> kLogitDims{"tokens", "columns", "first_column",
                                                            "vocabulary"};

// Of experts: {tokens, experts, top_k, hidden}.
inline constexpr std::array<std::string_view, 4> kRoutingDims{"tokens", "experts", "top_k", "hidden"};
constexpr Elements routed(const Shape& s) { return s.dims[0] * s.dims[2] * s.dims[3]; }

// ---- operands ----

enum class Role : std::uint8_t { none, in, out, io };

// Which types an operand may have.
enum class Types : std::uint8_t {
  real,  // fp32, fp16, bf16
  fp32,
  indices,  // int32
  bytes,    // uint8
  any,
};
bool allows(Types types, DataType type);
std::string_view text_of(Types types);

struct OperandRow {
  std::string_view name;
  Role role = Role::none;
  Extent extent = nothing;  // the elements that it has at least
  Extent moved = nothing;   // the elements that are read, written or both
  Types types = Types::real;
  bool is_optional = false;
  int passes = 1;  // of an element between memory and kernel
};

constexpr OperandRow in(std::string_view name, Extent extent) { return {name, Role::in, extent, extent}; }
constexpr OperandRow out(std::string_view name, Extent extent) { return {name, Role::out, extent, extent}; }
constexpr OperandRow io(std::string_view name, Extent extent) {
  return {.name = name, .role = Role::io, .extent = extent, .moved = extent, .passes = 2};
}

constexpr OperandRow moves(Extent moved, OperandRow row) {
  row.moved = moved;
  return row;
}
// So small beside the others that what it moves is not counted.
constexpr OperandRow small(OperandRow row) { return moves(nothing, row); }
constexpr OperandRow optional(OperandRow row) {
  row.is_optional = true;
  return row;
}
// What is both read and written, but mostly only one of them.
constexpr OperandRow mostly_once(OperandRow row) {
  row.passes = 1;
  return row;
}
constexpr OperandRow of_types(Types types, OperandRow row) {
  row.types = types;
  return row;
}
constexpr OperandRow fp32(OperandRow row) { return of_types(Types::fp32, row); }
constexpr OperandRow indices(OperandRow row) { return of_types(Types::indices, row); }
constexpr OperandRow bytes(OperandRow row) { return of_types(Types::bytes, row); }
constexpr OperandRow any_type(OperandRow row) { return of_types(Types::any, row); }

// ---- products ----

// Matrix products of one instruction, each of 2 m n k operations, or of 2 sequences sequence^2 heads head_dim.
struct Products {
  int executed = 0;
  int needed = 0;            // by the model: nothing is made a second time
  int to_scores = 0;         // of those executed: with the scores as their result, and with them as a factor
  int from_scores = 0;       //
  int to_capped_scores = 0;  // executed besides in models that cap their scores
  std::size_t inner = 2;     // of a linear product: the one of the dims m, n, k that is summed over
};

// What Instruction::extra is.
enum class Extra : std::uint8_t { none, sequence, key_value_heads, activation_kind, unit };

// How often a rank sends its part of the whole vector over a ring of many ranks, and whether the parts are of the
// vector divided by the ranks; else each rank sends the whole.
struct Ring {
  int passes = 0;
  bool divides = true;
};

// What a memory instruction takes (1) or gives back (-1): one instance of its buffer, or every one.
struct Takes {
  int sign = 0;
  bool every_instance = false;
};

struct InstructionRow {
  Op op = Op::phase;
  std::string_view name;
  Class kind = Class::structure;
  Cost cost = Cost::none;
  std::array<std::string_view, 4> dims{};
  std::array<OperandRow, kMaxOperands> operands{};
  Products products{};
  Ring ring{};
  Takes takes{};
  Extra extra = Extra::none;
};

constexpr bool rows_are_in_order(const std::array<InstructionRow, kOps>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].op != static_cast<Op>(i)) return false;
  }
  return true;
}

}  // namespace zeroplan::program
