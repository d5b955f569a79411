#include "executor/device/cpu/streams.hpp"

#include <utility>

namespace zeroplan::executor::cpu {
namespace {

// An event is a stream and how many works of it must be done; 0 is past.
constexpr unsigned kStreamShift = 56;
constexpr std::uint64_t kNumberMask = (std::uint64_t{1} << kStreamShift) - 1;

// The lane whose thread this is.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): a thread finds what it is where it finds it
thread_local const void* own_lane = nullptr;

}  // namespace

Streams::~Streams() {
  for (Lane& lane : lanes_) {
    if (!lane.thread.joinable()) continue;
    {
      const std::lock_guard lock(lane.mutex);
      lane.stops = true;
    }
    lane.wake.notify_one();
    lane.thread.join();
  }
}

void Streams::run(program::Stream stream, Work work) {
  Lane& lane = this->lane(stream);
  if (!has_thread(stream) || own_lane == &lane) return work();
  if (!lane.thread.joinable()) lane.thread = std::thread([this, &lane] { serve(lane); });
  ++lane.issued;
  {
    const std::lock_guard lock(lane.mutex);
    lane.works.push_back(std::move(work));
  }
  lane.wake.notify_one();
}

void Streams::serve(Lane& lane) {
  own_lane = &lane;
  std::unique_lock lock(lane.mutex);
  while (true) {
    lane.wake.wait(lock, [&] { return lane.stops || !lane.works.empty(); });
    if (lane.works.empty()) return;
    const Work work = std::move(lane.works.front());
    lane.works.pop_front();
    lock.unlock();
    try {
      if (!failed_.load(std::memory_order_acquire)) work();
    } catch (...) {
      note_failure();
    }
    lane.done.fetch_add(1, std::memory_order_release);
    lane.done.notify_all();
    lock.lock();
  }
}

Device::Event Streams::record(program::Stream stream) const {
  const std::uint64_t issued = lanes_[static_cast<std::size_t>(stream)].issued;
  return issued == 0 ? 0 : (static_cast<std::uint64_t>(stream) + 1) << kStreamShift | issued;
}

void Streams::await(Device::Event event) {
  if (event == 0) return;
  const std::uint64_t number = event & kNumberMask;
  Lane& lane = lanes_[(event >> kStreamShift) - 1];
  for (std::uint64_t done = lane.done.load(std::memory_order_acquire); done < number;
       done = lane.done.load(std::memory_order_acquire)) {
    lane.done.wait(done, std::memory_order_acquire);
  }
}

void Streams::wait(program::Stream stream, Device::Event event) {
  if (event == 0 || (event >> kStreamShift) - 1 == static_cast<std::uint64_t>(stream)) return;
  if (has_thread(stream)) return run(stream, [this, event] { await(event); });
  await(event);
  throw_failure();
}

void Streams::synchronize() {
  drain();
  throw_failure();
}

void Streams::drain() noexcept {
  for (std::size_t stream = 0; stream < lanes_.size(); ++stream) {
    await(record(static_cast<program::Stream>(stream)));
  }
}

void Streams::note_failure() noexcept {
  const std::lock_guard lock(failure_mutex_);
  if (!failure_) failure_ = std::current_exception();
  failed_.store(true, std::memory_order_release);
}

void Streams::throw_failure() {
  if (!failed_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(failure_mutex_);
  std::rethrow_exception(failure_);
}

}  // namespace zeroplan::executor::cpu
