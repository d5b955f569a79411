#pragma once

#include "planner/program/zero_layout.hpp"

namespace zeroplan::program {

// The optimizer step under ZeRO: the norm of all gradients, the update of what this rank holds, and the gathering of what
// was updated.
class ZeroStep {
 public:
  ZeroStep(Builder& builder, const ZeroLayout& layout, BufferId scalars)
      : builder_(builder), layout_(layout), scalars_(scalars) {}

  void emit();

 private:
  void add_norms();
  void gather_parameters();
  void update(const Unit& unit);
  Operand scalars_from(Scalar first, Elements count);
  // In StepProgram::units, from 1; 0 for what is not there.
  std::uint32_t number_of(const Unit& unit) const;
  Operand own_parameter(const Unit& unit) const;

  Builder& builder_;
  const ZeroLayout& layout_;
  BufferId scalars_;
};

}  // namespace zeroplan::program
