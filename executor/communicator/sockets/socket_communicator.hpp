#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "executor/communicator/communicator.hpp"
#include "executor/run_identity.hpp"

namespace zeroplan::executor {

struct SocketOptions {
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
  std::string master_address;  // of rank 0's host: a name, or numbers of IPv4 or IPv6
  int master_port = 0;
  std::chrono::milliseconds timeout{60'000};  // of the start, and of one wait for the other ranks

  // Which run this is: a process with another identity, or one that does not prove that it knows the secret,
  // is no rank of it.
  RunIdentity identity{};
  std::string secret{};
  // Rank 0: a process that said it is a rank was turned away, and why. The run goes on waiting for the rank.
  std::function<void(const std::string& why)> refused{};

  // Called when this rank neither ended nor came to a call within the timeout, at most 5 s, after the run was
  // stopped: on a thread of the communicator, as the rank's own is stuck. This is the place
  // to end the process. Absent: `report` goes to stderr and std::terminate ends the process.
  std::function<void(const std::string& report)> stalled{};
};

// Runs `rank_main` as one of `ranks` processes, on one host or many, that are connected by TCP and need no
// MPI. All are started with the same master, where rank 0 listens; the order in which they start does not
// matter. Rank 0 listens at the master's address alone, the others at the address by which they reach it, at
// ports that the system chooses, and nobody listens any more once all are connected. Who connects and is no
// rank of this run is turned away; it costs the run nothing. Ranks and rank 0 prove to each other that they
// know the secret without sending it. What they send each other then is not encrypted or signed: whoever can
// write into the connections of the network can write into the run.
//
// The communicator is an exchange communicator: exchange_communicator.hpp says what that costs. One thread
// may be in a call at a time.
//
// A failure on one rank (an exception of rank_main, abort(), a rank that does not come within the timeout,
// calls that differ, a process that ended) ends rank_main with a CommunicationError in its next call, and is
// then thrown here, on every rank, with one text: "rank k: " and its message where rank k threw, followed by
// what rank k was at; as NotPossible, CommunicationError, DeviceError or std::logic_error where it was one,
// as ConfigurationError unchanged, otherwise as std::runtime_error. What ends a rank without a word (a
// signal) is seen at once, what it was at is known up to a twentieth of a second before. Returns when all
// ranks have.
void run_socket_rank(const SocketOptions& options, const std::function<void(Communicator&)>& rank_main);

}  // namespace zeroplan::executor
