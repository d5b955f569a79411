#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "planner/instructions/instruction.hpp"

// How fast a machine runs kernels, as `zeroplan calibrate` measured it: tables by instruction, types and
// sizes.
namespace zeroplan::describe {

// What the speed of an instruction is a function of.
enum class KernelSizes : std::uint8_t {
  product,    // m, n, k; in operations per second
  attention,  // sequence and head_dim; in operations per second, of the whole square
  streaming,  // bytes that are read and written; in bytes per second
};
KernelSizes sizes_of(program::Op op);

// The types of all operands as one number, a digit of 4 bits each, the first operand in the lowest.
using OperandTypes = std::uint32_t;
inline constexpr OperandTypes kAbsentType = 0xf;
inline constexpr unsigned kBitsPerType = 4;
// The digit of an operand: a program::DataType, or kAbsentType.
constexpr OperandTypes type_at(OperandTypes types, std::size_t operand) {
  return types >> (kBitsPerType * operand) & kAbsentType;
}

// What is measured apart: an instruction with operands of one set of types.
struct KernelKind {
  program::Op op = program::Op::copy;
  std::uint32_t variant =
      0;  // what else its work depends on: the ActivationKind of an activation, 0 of the others
  OperandTypes types = 0;

  bool operator==(const KernelKind&) const = default;
  bool operator<(const KernelKind& other) const {
    return std::tie(op, variant, types) < std::tie(other.op, other.variant, other.types);
  }
};

inline constexpr std::size_t kMostAxes = 3;

// One kind of kernel on a grid of sizes.
struct MeasuredKernel {
  KernelKind kind;
  std::array<std::vector<double>, kMostAxes> axes;  // ascending; empty beyond those of sizes_of(op)
  std::vector<double> rates;                        // per second; the last axis moves fastest
  std::vector<double> spread;  // of each, relative: half of what lies between the quartiles of its repeats

  std::array<std::vector<double>, kMostAxes> log_axes{};  // to the base 2, set by CalibratedRates
  std::vector<double> log_rates{};
};

// Rates of one device while `devices` of the machine work at the same thing.
class CalibratedRates {
 public:
  CalibratedRates() = default;
  CalibratedRates(std::int64_t devices, std::vector<MeasuredKernel> kernels, std::string source,
                  double skew = 0);

  std::int64_t devices() const { return devices_; }
  const std::string& source() const { return source_; }
  // Of what a rank computes between two collectives, the part that it then waits for the last one.
  double skew() const { return skew_; }
  const std::vector<MeasuredKernel>& kernels() const { return kernels_; }
  // Of the same instruction, the kind that differs least; nullptr where it was not measured.
  const MeasuredKernel* find(const KernelKind& kind) const;

 private:
  std::int64_t devices_ = 1;
  std::string source_;
  double skew_ = 0;
  std::vector<MeasuredKernel> kernels_;                         // by instruction
  std::array<std::uint16_t, program::kOps + 1> first_of_op_{};  // where those of each instruction begin
};

// The names of activations in files, in the order of program::ActivationKind.
const std::vector<std::string>& activation_names();

// Names of the axes of a table in files: {"m", "n", "k"}, {"sequence", "head_dim"} or {"bytes"}.
const std::vector<std::string>& axis_names(KernelSizes sizes);

}  // namespace zeroplan::describe
