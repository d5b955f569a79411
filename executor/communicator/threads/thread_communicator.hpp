#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "executor/communicator/communicator.hpp"

namespace zeroplan::executor {

struct ThreadOptions {
  std::chrono::milliseconds timeout{60'000};  // of one wait for the other ranks

  // Called by each rank before it meets the others, twice a call: tests disturb the order of ranks here. Must
  // not throw.
  std::function<void(std::int64_t rank)> delay{};

  // run_ranks only. Called on its caller's thread when a rank neither ended nor met the others within the
  // timeout after another one failed. Threads cannot be stopped and use memory of their caller, so this is
  // the place to end the process; when it returns, the wait goes on. Absent: `report` goes to stderr and
  // std::terminate ends the process.
  std::function<void(const std::string& report)> stalled{};
};

// One communicator for each rank of a new start; give each to one thread. Ranks read each other's memory
// directly, at two meetings a call: a reduction reads every rank's part of this rank's share and, where all
// ranks want the result, writes it to all. Messages name ranks by their number here, also in groups that were
// split off.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(std::int64_t ranks,
                                                                     const ThreadOptions& options);

// Runs `rank_main` on `ranks` threads and waits for all. When one throws, the others are stopped, and the
// first exception is thrown here with "rank k: " in front of its message: as CommunicationError, DeviceError
// or std::logic_error where it was one, as ConfigurationError unchanged (the user's mistake, not the rank's),
// otherwise as std::runtime_error.
void run_ranks(std::int64_t ranks, const ThreadOptions& options,
               const std::function<void(Communicator&)>& rank_main);

}  // namespace zeroplan::executor
