#include "executor/communicator/sockets/newcomers.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "executor/communicator/sockets/proof.hpp"

namespace zeroplan::executor::sockets {

namespace {

using namespace std::chrono_literals;

constexpr auto kTimeToIntroduce = 5s;
constexpr std::size_t kMostWaiting = 512;
constexpr int kMostAtOnce = 1024;
// After an error that the next call would have as well: poll() goes on saying that someone waits.
constexpr auto kPause = 50ms;

bool lacks_descriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

void Newcomers::serve(Clock::time_point deadline, const std::function<void(Frame, Newcomer)>& introduce) {
  const auto now = Clock::now();
  std::vector<pollfd> descriptors;
  for (const Newcomer& newcomer : waiting_) {
    descriptors.push_back(ready_when(newcomer.stream.socket().get(), true, newcomer.stream.has_to_write()));
  }
  if (!waiting_.empty()) deadline = std::min(deadline, waiting_.front().since + kTimeToIntroduce);
  if (accept_from_ <= now) {
    descriptors.push_back(ready_when(listener_.get(), true, false));
  } else {
    deadline = std::min(deadline, accept_from_);
  }
  if (poll_until(descriptors, deadline)) {
    for (Newcomer& newcomer : waiting_) {
      newcomer.stream.flush();
      if (auto frame = newcomer.stream.receive()) introduce(std::move(*frame), std::move(newcomer));
    }
  }
  std::erase_if(waiting_, [](const Newcomer& newcomer) {
    return !newcomer.stream.open() || Clock::now() - newcomer.since >= kTimeToIntroduce;
  });
  if (accept_from_ <= Clock::now()) accept_all();
}

void Newcomers::accept_all() {
  for (int i = 0; i < kMostAtOnce; ++i) {
    if (Socket socket = accept_one(listener_)) {
      if (waiting_.size() == kMostWaiting) drop_oldest();
      Newcomer& newcomer = waiting_.emplace_back(
          Newcomer{.stream = FrameStream(std::move(socket)), .nonce = {}, .since = Clock::now()});
      if (!greet_) continue;
      newcomer.nonce = fresh_bytes();
      newcomer.stream.send(greet_(newcomer.nonce));
      continue;
    }
    const int error = errno;
    if (would_block(error)) return;
    if (lacks_descriptors(error) && !waiting_.empty()) {
      drop_oldest();
    } else if (error != ECONNABORTED) {
      accept_from_ = Clock::now() + kPause;
      return;
    }
  }
}

}  // namespace zeroplan::executor::sockets
