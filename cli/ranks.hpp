#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "executor/communicator/communicator.hpp"
#include "executor/launch.hpp"

namespace zeroplan::cli {

// Threads of each of `ranks` ranks that share this host's processors.
int threads_of_one_of(std::int64_t ranks);

// Calls `rank_main` on every rank of this process: all `ranks` where they are threads, else the one that this
// process is. `timeout`: longest wait for another rank. Ranks that stall end the process.
void run_as_launched(const executor::Launch& launch, std::int64_t ranks, std::chrono::milliseconds timeout,
                     const std::function<void(executor::Communicator&)>& rank_main);

// "threads", "processes of MPI", "processes with sockets".
std::string text_of(executor::Launch::Kind kind);

}  // namespace zeroplan::cli
