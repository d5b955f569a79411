#pragma once

#include <functional>
#include <vector>

#include "planner/predict/prediction.hpp"
#include "planner/program/step_program.hpp"
#include "reports/explanation.hpp"

// The sums of an answer, term by term, from the step program.
namespace zeroplan::reports {

// Buffers alive at the peak that `wanted` takes, one term each.
std::vector<Term> buffer_terms(const predict::Prediction& prediction,
                               const std::function<bool(const program::Buffer&)>& wanted);

// Buffers held through the whole step: parameters, gradients and optimizer state.
std::vector<Term> model_state_terms(const program::StepProgram& program);

// Host memory of this rank at its own peak, one term per category.
std::vector<Term> host_buffer_terms(const predict::Prediction& prediction);

std::vector<Term> overhead_terms(const predict::Prediction& prediction);

// Bytes that this rank sends, one term per collective, buffer and phase.
std::vector<Term> traffic_terms(const program::StepProgram& program, program::GroupKind family);

// The same in multiples of the parameters of the rank, for the paper's measure.
std::vector<Term> psi_terms(const predict::Prediction& prediction);

// Bytes copied between device and host.
std::vector<Term> copy_terms(const program::StepProgram& program, program::Class direction);

// An instruction in a line: what it computes by its size, what it moves by its buffer and phase.
std::string instruction_name(const program::StepProgram& program, const program::Instruction& instruction,
                             program::Phase phase);

// FLOPs, one term per kind of kernel and shape.
std::vector<Term> flops_terms(const program::StepProgram& program, bool with_recomputed);

// Parameters of the whole model, one term per group of alike layers.
std::vector<Term> parameter_terms(const describe::Model& model, std::int64_t sequence);
std::vector<Term> active_parameter_terms(const describe::Model& model, std::int64_t sequence);

}  // namespace zeroplan::reports
