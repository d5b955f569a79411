#pragma once

#include <vector>

#include "planner/instructions/table.hpp"
#include "planner/program/step_program.hpp"
#include "planner/units.hpp"

// What moves, per rank and step, from the collectives and host copies of a step program.
namespace zeroplan::predict {

// The whole vector of a collective.
inline const program::Buffer& whole_buffer(const program::StepProgram& program,
                                           const program::Instruction& collective) {
  return program.buffers[collective.operands[program::whole_operand(collective.op)].buffer];
}

struct TrafficEntry {
  program::GroupKind group = program::GroupKind::data_parallel;
  program::Op collective = program::Op::all_reduce;
  program::Phase phase = program::Phase::forward;
  double calls = 0;
  double elements = 0;  // of the whole vectors, n x partition for all-gather and reduce-scatter
  double bytes = 0;     // the same in bytes: "S" of nccl-tests
  double sent_bytes =
      0;  // by this rank: 2(n-1)/n S for all-reduce, (n-1)/n S for reduce-scatter and all-gather
};

struct Traffic {
  std::vector<TrafficEntry> entries;  // one for each (group, collective, phase) that occurs, with n > 1
  double to_host_bytes = 0;           // device to host, and back
  double to_device_bytes = 0;

  // By all groups of a family: those of data parallelism together, or the tensor-parallel one.
  double sent_bytes(program::GroupKind family) const;
  double data_parallel_bytes() const { return sent_bytes(program::GroupKind::data_parallel); }
  double tensor_parallel_bytes() const { return sent_bytes(program::GroupKind::tensor_parallel); }
  // The paper's measure (Section 7): elements that a device sends per parameter of its model replica, for
  // large n: an all-reduce counts 2, a reduce-scatter or all-gather 1. 2, 2, 2 and 3 for stages 0 to 3.
  // Gradients and parameters of the data-parallel groups only.
  double data_parallel_psi(double parameters_of_rank) const;
};

Traffic read_traffic(const program::StepProgram& program);

}  // namespace zeroplan::predict
