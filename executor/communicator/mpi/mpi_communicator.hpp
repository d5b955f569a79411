#pragma once

#include <chrono>
#include <functional>

#include "executor/communicator/communicator.hpp"

namespace zeroplan::executor {

struct MpiOptions {
  std::chrono::milliseconds timeout{60'000};  // of one wait for the other ranks

  // How many ranks the launcher says it started; 0: not known. Another number is a ConfigurationError: an MPI
  // that does not know its launcher starts every process as a run of one rank.
  std::int64_t ranks = 0;
};

// Runs `rank_main` with the group of all processes that mpirun (or srun ...) started, on one host or many.
// Initializes MPI and finalizes it; call it once in a process. Groups run beside each other where this MPI can be called
// from several threads at a time (MPI_THREAD_MULTIPLE); else one thread of a process may be in a call at a time.
// The communicator is an exchange communicator: exchange_communicator.hpp says what that costs.
//
// MPI has no way to go on without a rank. So a failure (a rank that did not come, calls that differ, abort(),
// an exception of rank_main) is written to stderr by the rank that saw it, and MPI_Abort ends all processes:
// with exit code 2 after a ConfigurationError, 3 after NotPossible, otherwise 4. What does not return then,
// does not throw either.
void run_mpi_rank(int* argc, char*** argv, const MpiOptions& options,
                  const std::function<void(Communicator&)>& rank_main);

}  // namespace zeroplan::executor
