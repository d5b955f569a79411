#include "executor/device/cpu/streams.hpp"

#include <chrono>
#include <utility>

namespace zeroplan::executor::cpu {
namespace {

using Clock = std::chrono::steady_clock;

// The lane whose thread this is.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): a thread finds what it is where it finds it
thread_local const void* own_lane = nullptr;

void run_watched(std::size_t stream, const HostWork& work, const Watch& watch) {
  const auto start = Clock::now();
  try {
    work.run(work.self, work.what);
  } catch (...) {
    if (watch.progress != nullptr) watch.progress->fail(watch.number);
    throw;
  }
  if (watch.seconds != nullptr) *watch.seconds = std::chrono::duration<float>(Clock::now() - start).count();
  if (watch.progress != nullptr)
    watch.progress->finished[stream].store(watch.number, std::memory_order_relaxed);
}

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

void Streams::run(program::Stream stream, const HostWork& work, const Watch& watch) {
  Lane& lane = this->lane(stream);
  if (!has_thread(stream) || own_lane == &lane)
    return run_watched(static_cast<std::size_t>(stream), work, watch);
  issue(lane, {work, watch, {}});
}

void Streams::issue(Lane& lane, const Work& work) {
  if (!lane.thread.joinable()) {
    lane.works.reserve(kMostWaiting);
    lane.thread = std::thread([this, &lane] { serve(lane); });
  }
  ++lane.issued;
  {
    std::unique_lock lock(lane.mutex);
    lane.room.wait(lock, [&] { return lane.works.size() < kMostWaiting; });
    lane.works.push_back(work);
  }
  lane.wake.notify_one();
}

// Takes all works that there are at a time. Both vectors have their whole length from the start, so that neither side
// allocates however far this thread falls behind.
void Streams::serve(Lane& lane) {
  own_lane = &lane;
  const auto stream = static_cast<std::size_t>(&lane - lanes_.data());
  std::vector<Work> taken;
  taken.reserve(kMostWaiting);
  while (true) {
    {
      std::unique_lock lock(lane.mutex);
      lane.wake.wait(lock, [&] { return lane.stops || !lane.works.empty(); });
      if (lane.works.empty()) return;
      taken.clear();
      taken.swap(lane.works);
    }
    lane.room.notify_one();
    for (const Work& work : taken) {
      try {
        if (work.work.run == nullptr) {
          await(work.point);
        } else if (!failed_.load(std::memory_order_acquire)) {
          run_watched(stream, work.work, work.watch);
        }
      } catch (...) {
        note_failure();
      }
      lane.done.fetch_add(1, std::memory_order_release);
      lane.done.notify_all();
    }
  }
}

Device::Event Streams::make_event() {
  events_.push_back({});
  return static_cast<Device::Event>(events_.size() - 1);
}

void Streams::record(Device::Event event, program::Stream stream) {
  events_[event] = {static_cast<std::size_t>(stream), lane(stream).issued};
}

void Streams::await(const Point& point) {
  Lane& lane = lanes_[point.stream];
  for (std::uint64_t done = lane.done.load(std::memory_order_acquire); done < point.works;
       done = lane.done.load(std::memory_order_acquire)) {
    lane.done.wait(done, std::memory_order_acquire);
  }
}

void Streams::wait(program::Stream stream, Device::Event event, double* held) {
  const Point& point = events_[event];
  if (point.works == 0 || point.stream == static_cast<std::size_t>(stream)) return;
  if (has_thread(stream)) return issue(lane(stream), {{}, {}, point});
  const auto start = Clock::now();
  await(point);
  if (held != nullptr) *held += std::chrono::duration<double>(Clock::now() - start).count();
  throw_failure();
}

void Streams::synchronize() {
  drain();
  throw_failure();
}

void Streams::drain() noexcept {
  for (std::size_t stream = 0; stream < lanes_.size(); ++stream) await({stream, lanes_[stream].issued});
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
