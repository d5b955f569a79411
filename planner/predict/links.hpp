#pragma once

#include <cstdint>

#include "planner/describe/machine/cluster.hpp"
#include "planner/program/step_program.hpp"
#include "planner/units.hpp"

// How long collectives take on the described machine.
namespace zeroplan::predict {

// Where the ranks of one group are.
struct Placement {
  std::int64_t ranks = 1;
  std::int64_t ranks_per_node = 1;
  std::int64_t nodes = 1;           // that the group spans
  std::int64_t groups_sharing = 1;  // groups of the same kind that use a node's network interfaces at once
};

// `run_ranks`: of the whole run.
Placement place_group(const program::Group& group, std::int64_t run_ranks, const describe::Cluster& cluster);

// Seconds of one collective over a whole vector of `bytes` ("S" of nccl-tests); 0 for one rank, not a number
// where the cluster's links are not described. Never falls with `bytes`. `type`: of the elements, where types
// were measured apart. Costs about 0.1 us at most.
double collective_seconds(const describe::Cluster& cluster, const Placement& placement,
                          program::Op collective, double bytes,
                          program::DataType type = program::DataType::fp32);

}  // namespace zeroplan::predict
