#pragma once

#include <functional>
#include <vector>

#include "executor/communicator/sockets/frame.hpp"
#include "executor/communicator/sockets/socket.hpp"
#include "executor/communicator/sockets/socket_communicator.hpp"

// How the ranks of a run find each other. For the implementation of sockets/ only.
namespace zeroplan::executor::sockets {

// What a rank has after the rendezvous: the others' addresses, and its line to rank 0.
struct Rendezvous {
  std::vector<FrameStream> control;  // of rank 0: by rank, its own closed; of the others: to rank 0
  std::vector<Address> addresses;    // by rank; as this rank can reach them
  std::string token;                 // of the run: tells its connections from strays
  Socket listener;                   // for the connections of the higher ranks, until all have come
};

// Rank 0 listens at the master's address until all ranks have introduced themselves, and then sends everyone
// the table. A process that says it is a rank and is not of this run (another identity, size or version, no
// secret, a rank that came already) is told so, which throws CommunicationError there; rank 0 goes on waiting.
// Throws CommunicationError after the timeout, naming the ranks that did not come and who was turned away, on
// every rank that came.
Rendezvous meet_ranks(const SocketOptions& options);

// A connection to every other rank, by rank (its own: none). Each rank connects to the lower ones and accepts
// the higher ones. `check` is called now and then, and throws to give up.
// Closes the listener.
std::vector<Socket> connect_ranks(const SocketOptions& options, Rendezvous& rendezvous,
                                  const std::function<void()>& check);

}  // namespace zeroplan::executor::sockets
