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

void while_meeting(Communicator& world, const std::function<void(std::stop_token)>& work) {
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
  std::vector<std::uint8_t> finished(static_cast<std::size_t>(world.size()));
  bool running = true;
  while (true) {
    if (running && done.wait_for(kBetweenMeetings) == std::future_status::ready) {
      done.get();
      running = false;
    }
    auto own = static_cast<std::uint8_t>(running ? 0 : 1);
    const auto as_tensor = [](std::uint8_t* bytes, std::size_t count) {
      return Tensor{reinterpret_cast<std::byte*>(bytes), program::DataType::uint8,
                    static_cast<Elements>(count)};
    };
    world.all_gather(as_tensor(&own, 1), as_tensor(finished.data(), finished.size()));
    if (std::count(finished.begin(), finished.end(), 0) == 0) return;
  }
}

}  // namespace zeroplan::executor
