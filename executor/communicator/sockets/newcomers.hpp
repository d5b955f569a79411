#pragma once

#include <functional>
#include <string>
#include <vector>

#include "executor/communicator/sockets/frame.hpp"
#include "executor/communicator/sockets/socket.hpp"

// Who connects to a port that ranks listen at: ranks, or whoever else finds it. For the implementation of
// sockets/ only.
namespace zeroplan::executor::sockets {

struct Newcomer {
  FrameStream stream;
  std::string nonce;  // that it was greeted with
  Clock::time_point since;
};

// Connections that were accepted and have not yet said who they are. Each has some seconds for it. There are
// never more than some hundreds; where there is no room, here or in the process's descriptors, the one that
// has been silent longest is closed for the next, so that none keeps a rank out.
class Newcomers {
 public:
  // `greet`: the first thing said to each, of its nonce; absent: nothing is said.
  explicit Newcomers(const Socket& listener, std::function<Frame(const std::string& nonce)> greet = {})
      : listener_(listener), greet_(std::move(greet)) {}

  // Hands each that has introduced itself to `introduce`; waits for one until the deadline, and may return
  // before it.
  void serve(Clock::time_point deadline, const std::function<void(Frame, Newcomer)>& introduce);

 private:
  void accept_all();
  void drop_oldest() { waiting_.erase(waiting_.begin()); }

  const Socket& listener_;
  std::function<Frame(const std::string& nonce)> greet_;
  std::vector<Newcomer> waiting_;  // in the order in which they came
  Clock::time_point accept_from_{};
};

}  // namespace zeroplan::executor::sockets
