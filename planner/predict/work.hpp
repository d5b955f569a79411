#pragma once

#include "planner/program/step_program.hpp"
#include "planner/units.hpp"

// Floating-point operations from the matrix products of a step program. Attention is counted over the whole s
// x s square (not halved for causality), as in the formulas of Megatron-LM (arXiv 2104.04473) and PaLM's MFU.
// Where layers have windows, it is counted over that part of the square that the pairs which are seen are of
// the causal ones.
namespace zeroplan::predict {

struct Work {
  Flops hardware = 0;         // of this rank: everything it executes, recomputation included
  Flops model = 0;            // of this rank: forward once, backward twice that
  Flops attention = 0;        // of `hardware`: products over the s x s square, of which causality needs half
  Flops model_attention = 0;  // of `model`: the same
  Flops hardware_all_ranks = 0;
  Flops model_all_ranks = 0;

  // This and `later`, `count` times.
  void append(const Work& later, double count = 1);
};

// FLOPs of one instruction as executed; 0 for what is not a matrix product. Of attention, the mean of the
// program's layers, some of which may have windows.
Flops executed_flops(const program::StepProgram& program, const program::Instruction& instruction);

// Of these, what the model's forward and backward need: nothing computed twice, nothing outside of a window.
Flops needed_flops(const program::StepProgram& program, const program::Instruction& instruction);

// Of the pairs of query and key that causal attention has, the part that the program's layers see on average:
// 1 without windows. Every layer runs each of its instructions as often as every other, so that sums over the
// program are exact with this mean.
double visible_share(const program::StepProgram& program, const program::Instruction& instruction);

Work read_work(const program::StepProgram& program);
// Of instructions [begin, end).
Work read_work(const program::StepProgram& program, std::size_t begin, std::size_t end);

}  // namespace zeroplan::predict
