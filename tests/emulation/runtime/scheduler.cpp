#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <optional>
#include <string_view>

#include "runtime/engine.hpp"

// What runs the streams of emulated GPUs.
namespace zeroplan::emulation {

namespace {

// The seed-th of the orders of so many things.
std::vector<std::size_t> order_of(std::size_t count, std::uint64_t seed) {
  std::vector<std::size_t> left(count), order;
  std::iota(left.begin(), left.end(), 0);
  while (!left.empty()) {
    const auto at = static_cast<std::ptrdiff_t>(seed % left.size());
    seed /= left.size();
    order.push_back(left[static_cast<std::size_t>(at)]);
    left.erase(left.begin() + at);
  }
  return order;
}

constexpr std::chrono::milliseconds kBetweenLooks{10};

}  // namespace

std::vector<CUstream_st*> Engine::streams_of(int device) const {
  std::vector<CUstream_st*> own;
  for (CUstream_st* stream : streams) {
    if (stream->device == device) own.push_back(stream);
  }
  std::sort(own.begin(), own.end(),
            [](const CUstream_st* a, const CUstream_st* b) { return a->number < b->number; });
  return own;
}

void Engine::settle() {
  for (bool again = true; again;) {
    again = false;
    for (CUstream_st* stream : streams) {
      while (!stream->entries.empty()) {
        auto& head = stream->entries.front();
        if (head.operation.run || (head.waits && !head.waits->done)) break;
        if (head.completes) {
          head.completes->done = true;
          head.completes->stream = nullptr;
          head.completes->at = SteadyClock::now();
        }
        stream->entries.pop_front();
        again = true;
      }
    }
  }
}

bool Engine::runnable(const CUstream_st& stream) const {
  if (stream.entries.empty()) return false;
  const Operation& head = stream.entries.front().operation;
  return head.run && (!head.ready || head.ready());
}

bool Engine::busy(int device) const {
  if (!kFences) return devices_[static_cast<std::size_t>(device)].running != nullptr;
  return std::any_of(devices_.begin(), devices_.end(),
                     [](const DeviceState& other) { return other.running != nullptr; });
}

CUstream_st* Engine::pick(int device, const Completion* goal) {
  if (busy(device)) return nullptr;
  const Policy policy = goal == nullptr && options_.schedule.policy == Policy::late
                            ? Policy::in_order
                            : options_.schedule.policy;
  if (policy == Policy::late) return pick_late(*goal);
  const std::vector<CUstream_st*> own = streams_of(device);
  if (policy == Policy::priority) {
    for (const std::size_t i : order_of(own.size(), options_.schedule.seed)) {
      if (runnable(*own[i])) return own[i];
    }
    return nullptr;
  }
  std::vector<CUstream_st*> able;
  std::copy_if(own.begin(), own.end(), std::back_inserter(able), [&](const auto* s) { return runnable(*s); });
  if (able.empty()) return nullptr;
  if (policy == Policy::random) return able[state(device).random() % able.size()];
  return *std::min_element(able.begin(), able.end(), [](const CUstream_st* a, const CUstream_st* b) {
    return a->entries.front().order < b->entries.front().order;
  });
}

CUstream_st* Engine::pick_late(const Completion& goal) const {
  CUstream_st* stream = goal.stream;
  while (stream != nullptr && !stream->entries.empty()) {
    const auto& head = stream->entries.front();
    if (head.operation.run) {
      return !busy(stream->device) && runnable(*stream) ? stream : nullptr;
    }
    stream = head.waits ? head.waits->stream : nullptr;
  }
  return nullptr;
}

// What the device's own work may wait for: that of other devices, or of its other streams.
CUstream_st* Engine::pick_elsewhere(int device) {
  for (int i = 1; i <= devices(); ++i) {
    if (CUstream_st* stream = pick((device + i) % devices(), nullptr)) return stream;
  }
  return nullptr;
}

void Engine::run_head(Lock& lock, CUstream_st& stream) {
  const int device = stream.device;
  Operation& operation = stream.entries.front().operation;
  if (collects_) history.push_back(fmt::format("{} {}", device, operation.name));
  const std::string_view full = operation.name, name = full.substr(0, full.find('<'));
  for (Injection& injection : failing_operations) {
    const bool is_it = injection.name == full || injection.name == name;
    if (is_it && injection.n > 0 && --injection.n == 0) return fail(device, injection.error);
  }
  state(device).running = &stream;
  run_operation(lock, stream, operation);
  state(device).running = nullptr;
  stream.entries.pop_front();
  settle();
  ++changes_;
  changed_.notify_all();
}

void Engine::run_operation(Lock& lock, CUstream_st& stream, Operation& operation) {
  std::string thrown;
  HostThread& thread = host_thread();
  // One that waits for others reaches into their memory.
  std::optional<Fence> fence;
  if (!operation.ready) fence.emplace(memory, operation.ranges);
  lock.unlock();
  const bool before = thread.in_host_function;
  thread.in_host_function = true;  // no operation may call the runtime
  try {
    operation.run();
  } catch (const std::exception& error) {
    thrown = error.what();
  } catch (...) {
    thrown = "something that is no std::exception";
  }
  thread.in_host_function = before;
  fence.reset();
  lock.lock();
  if (thrown.empty()) return;
  problem(fmt::format("{} threw: {}", operation.name, thrown));
  fail(stream.device, cudaErrorLaunchFailure);
}

void Engine::reach(Lock& lock, const std::shared_ptr<Completion>& point) {
  if (point->done) return join_host(*point);
  const int device = point->stream->device;
  std::uint64_t seen = changes_;
  auto since = SteadyClock::now();
  ++waiting_;
  while (!point->done) {
    settle();
    if (point->done) break;
    CUstream_st* next = pick(device, point.get());
    if (next == nullptr) next = pick_elsewhere(device);
    if (next != nullptr) {
      run_head(lock, *next);
      continue;
    }
    changed_.wait_for(lock, std::chrono::milliseconds(1));
    const bool runs = std::any_of(devices_.begin(), devices_.end(),
                                  [](const DeviceState& other) { return other.running != nullptr; });
    if (changes_ != seen || runs) {
      seen = changes_;
      since = SteadyClock::now();
    } else if (std::chrono::duration<double>(SteadyClock::now() - since).count() > options_.stuck_seconds) {
      problem(what_waits());
      fail(device, cudaErrorLaunchTimeout);
    }
  }
  --waiting_;
  join_host(*point);
}

void Engine::reach_all(Lock& lock, int device) {
  for (CUstream_st* stream : streams_of(device)) {
    if (streams.contains(stream) && !stream->capture) reach(lock, record(*stream));
  }
}

void Engine::help(Lock& lock, const std::shared_ptr<Completion>& point) {
  if (!point->done) {
    CUstream_st* next = pick(point->stream->device, point.get());
    if (next == nullptr) next = pick_elsewhere(point->stream->device);
    if (next != nullptr) run_head(lock, *next);
  }
  if (point->done) join_host(*point);
}

std::string Engine::what_waits() const {
  std::string text = "nothing can run:";
  for (int device = 0; device < devices(); ++device) {
    for (const CUstream_st* stream : streams_of(device)) {
      if (stream->entries.empty()) continue;
      const auto& head = stream->entries.front();
      text +=
          fmt::format(" stream {} of device {} {} {};", stream->number, device,
                      head.operation.run ? "is not ready for" : "waits for",
                      head.operation.run              ? std::string(head.operation.name)
                      : head.waits->stream != nullptr ? fmt::format("stream {}", head.waits->stream->number)
                                                      : "what never runs");
    }
  }
  return text;
}

// Runs when no thread of the host is in a call that waits and none has called anything for some time: what it computes
// meanwhile may wait for what a stream does.
void Engine::serve_idle() {
  Lock lock(mutex);
  std::uint64_t calls = calls_;
  auto last_call = SteadyClock::now();
  while (!stops_) {
    stopped_.wait_for(lock, kBetweenLooks);
    if (calls != calls_ || waiting_ > 0) {
      calls = calls_;
      last_call = SteadyClock::now();
    }
    if (std::chrono::duration<double>(SteadyClock::now() - last_call).count() < options_.idle_seconds)
      continue;
    while (!stops_ && calls == calls_ && waiting_ == 0) {
      CUstream_st* next = devices() == 0 ? nullptr : pick_elsewhere(0);
      if (next == nullptr) break;
      run_head(lock, *next);
    }
  }
}

}  // namespace zeroplan::emulation
