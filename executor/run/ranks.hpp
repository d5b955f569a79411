#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "executor/communicator/communicator.hpp"
#include "executor/launch.hpp"
#include "executor/run_identity.hpp"

namespace zeroplan::executor {

struct RankOptions {
  std::int64_t ranks = 1;                     // of the whole run
  std::chrono::milliseconds timeout{60'000};  // longest wait for another rank
  RunIdentity identity;                       // processes whose identities differ do not run together
  // Called when ranks stall, with what is known of it: the place to end the process, as threads that hang cannot be
  // stopped.
  std::function<void(const std::string& report)> stalled{};
  // Called on rank 0 with why it turned a process away; may be absent.
  std::function<void(const std::string& why)> refused{};
};

// Calls `rank_main` on every rank of this process: all of them where they are threads, else the one that this process
// is. Throws what the ranks throw, and CommunicationError.
void run_as_launched(const Launch& launch, const RankOptions& options,
                     const std::function<void(Communicator&)>& rank_main);

// Of `ranks`, those that share this host's memory and processors.
std::int64_t ranks_here(const Launch& launch, std::int64_t ranks);

// Threads of each of `ranks` ranks that share this host's processors.
int threads_of_one_of(std::int64_t ranks);

// "threads", "processes of MPI", "processes with sockets".
std::string text_of(Launch::Kind kind);

}  // namespace zeroplan::executor
