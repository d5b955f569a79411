#pragma once

#include <span>
#include <vector>

#include "executor/device/device.hpp"
#include "planner/program/step_program.hpp"

namespace zeroplan::executor {

// What weight decay leaves alone when it is for matrices only: biases, and weights and biases of norms. For each
// unit of a program, ranges of what this rank owns of its vector, rising and apart from each other.
class DecayMask {
 public:
  explicit DecayMask(const program::StepProgram& program);
  // Of an optimizer_update: its `extra` is the number of the unit, from 1. Empty for 0, which is no unit.
  std::span<const ElementRange> undecayed(std::uint32_t unit) const;

 private:
  std::vector<std::vector<ElementRange>> of_unit_;
};

}  // namespace zeroplan::executor
