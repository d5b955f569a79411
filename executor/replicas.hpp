#pragma once

#include "executor/rank.hpp"
#include "planner/program/measurement.hpp"

namespace zeroplan::executor {

// Whether ranks that must hold the same parameters do, by a checksum of their bytes: data-parallel ranks where
// parameters are whole (stages 0 to 2), the replicas of a partition, tensor-parallel ranks of those tensors that each of them holds whole;
// and whether each parameter that a rank owns is its fp32 master, rounded. All ranks of `world` must call it,
// between steps; each gets the same answer.
program::ReplicaChecks check_replicas(Rank& rank, ControlPlane& world);

}  // namespace zeroplan::executor
