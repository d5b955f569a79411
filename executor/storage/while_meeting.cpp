#include "executor/storage/while_meeting.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <future>
#include <thread>
#include <vector>

namespace zeroplan::executor {

namespace {

// Far below any timeout, which is a second at least, and long enough to cost nothing.
constexpr std::chrono::milliseconds kBetweenMeetings{50};

}  // namespace

void while_meeting(ControlPlane& world, const std::function<void(std::stop_token)>& work) {
  if (world.size() == 1) return work({});
  std::promise<void> promise;
  std::future<void> done = promise.get_future();
  const std::jthread worker([&](const std::stop_token& stop) {
    try {
      work(stop);
      promise.set_value();
    } catch (...) {
      promise.set_exception(std::current_exception());
    }
  });
  bool running = true;
  while (true) {
    if (running && done.wait_for(kBetweenMeetings) == std::future_status::ready) {
      done.get();
      running = false;
    }
    const std::vector<std::uint8_t> at_work = gathered(world, static_cast<std::uint8_t>(running ? 1 : 0));
    if (std::count(at_work.begin(), at_work.end(), 0) == world.size()) return;
  }
}

}  // namespace zeroplan::executor
