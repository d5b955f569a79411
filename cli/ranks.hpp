#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "cli/command.hpp"
#include "executor/communicator/communicator.hpp"
#include "executor/launch.hpp"
#include "executor/run_identity.hpp"

namespace zeroplan::cli {

// Threads of each of `ranks` ranks that share this host's processors.
int threads_of_one_of(std::int64_t ranks);

// Calls `rank_main` on every rank of this process: all `ranks` where they are threads, else the one that this
// process is. `timeout`: longest wait for another rank. Ranks that stall end the process. Processes whose
// identities differ do not run together; `progress` (null: nowhere) hears of those that rank 0 turned away.
void run_as_launched(const executor::Launch& launch, std::int64_t ranks, std::chrono::milliseconds timeout,
                     const executor::RunIdentity& identity, std::ostream* progress,
                     const std::function<void(executor::Communicator&)>& rank_main);

// A rank's end that is no answer: its reason on standard error, with the rank where there are others.
Answer end_of_rank(const Request& request, const executor::Launch& launch, const std::string& reason,
                   int exit_code);

// "threads", "processes of MPI", "processes with sockets".
std::string text_of(executor::Launch::Kind kind);

}  // namespace zeroplan::cli
