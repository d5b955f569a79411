#pragma once

#include <chrono>
#include <functional>

#include "executor/communicator/communicator.hpp"

namespace zeroplan::executor {

struct MpiOptions {
  std::chrono::milliseconds timeout{60'000};  // of one wait for the other ranks
};

// Memory that a communicator holds beside its caller's, at most.
inline constexpr Bytes kMpiBufferBytes = 4 * kMiB;

// Runs `rank_main` with the group of all processes that mpirun (or srun ...) started, on one host or many.
// Initializes MPI and finalizes it; call it once in a process. One thread of a process may be in a call at a
// time.
//
// Ranks exchange partitions directly and add them in rank order, so results have the bits that threads/
// gives, and each rank sends (n-1)/n of the vector for a reduce_scatter or all_gather and twice that for an
// all_reduce. The root of a broadcast sends the vector to each of the others. Groups are limited to some
// hundreds of ranks by the messages from each to each.
//
// MPI has no way to go on without a rank. So a failure (a rank that did not come, calls that differ, abort(),
// an exception of rank_main) is written to stderr by the rank that saw it, and MPI_Abort ends all processes:
// with exit code 2 after a ConfigurationError, otherwise 4. What does not return then, does not throw either.
void run_mpi_rank(int* argc, char*** argv, const MpiOptions& options,
                  const std::function<void(Communicator&)>& rank_main);

}  // namespace zeroplan::executor
