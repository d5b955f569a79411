#include "runtime/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace zeroplan::emulation {

Engine& engine() {
  static Engine the;
  return the;
}

HostThread& host_thread() {
  thread_local HostThread own;
  return own;
}

Engine::Engine() {
  Lock lock(mutex);
  reset(lock, {}, false);
  idle_ = std::thread([this] { serve_idle(); });
}

Engine::~Engine() {
  {
    const Lock lock(mutex);
    stops_ = true;
    stopped_.notify_all();
  }
  idle_.join();
  for (const DeviceState& device : devices_) delete device.default_stream;  // which no program gives back
}

int Engine::current_device() {
  HostThread& thread = host_thread();
  if (thread.generation != generation_) {
    thread.generation = generation_;
    thread.device = 0;
    thread.last_error = cudaSuccess;
  }
  return thread.device;
}

void Engine::reset(Lock& lock, const MachineOptions& options, bool collects) {
  changed_.wait(lock, [this] {
    return std::none_of(devices_.begin(), devices_.end(),
                        [](const DeviceState& d) { return d.running != nullptr; });
  });
  for (CUstream_st* stream : streams) delete stream;
  for (CUevent_st* event : events) delete event;
  streams.clear();
  events.clear();
  graphs.clear();
  memory.release_all();
  accesses.clear();
  problems.clear();
  history.clear();
  failing_calls = options.failing_calls;
  failing_operations = options.failing_operations;
  options_ = options;
  collects_ = collects;
  devices_ = std::vector<DeviceState>(options.gpus.size());
  for (std::size_t device = 0; device < devices_.size(); ++device)
    devices_[device].random.seed(options.schedule.seed * 1009 + device);
  next_stream_ = 0;
  next_order_ = 0;
  host_clock_ = {};
  ++generation_;
}

void Engine::problem(const std::string& text) {
  if (!collects_) {
    (void)std::fputs(fmt::format("emulated CUDA: {}\n", text).c_str(), stderr);
    std::abort();
  }
  problems.push_back(text);
}

cudaError_t Engine::before(const char* call) {
  ++calls_;
  (void)current_device();
  if (host_thread().in_host_function) {
    problem(fmt::format("{} was called by a function of cudaLaunchHostFunc, which may not", call));
    return cudaErrorNotPermitted;
  }
  for (Injection& injection : failing_calls) {
    if (injection.name == call && injection.n > 0 && --injection.n == 0) return injection.error;
  }
  if (options_.driver != cudaSuccess) return options_.driver;
  if (devices_.empty()) return cudaErrorNoDevice;
  return device_error(current_device());
}

CUstream_st* Engine::make_stream(int device, bool hidden) {
  auto* stream = new CUstream_st;
  stream->number = next_stream_++;
  stream->device = device;
  stream->hidden = hidden;
  streams.insert(stream);
  return stream;
}

void Engine::destroy_stream(Lock& lock, CUstream_st* stream) {
  reach(lock, record(*stream));
  streams.erase(stream);
  delete stream;
}

CUstream_st* Engine::stream_of(cudaStream_t stream) {
  if (stream != nullptr) return streams.contains(stream) ? stream : nullptr;
  const int device = current_device();
  CUstream_st*& defaulted = state(device).default_stream;
  if (defaulted == nullptr) {
    defaulted = make_stream(device, false);
    defaulted->defaulted = true;
  }
  return defaulted;
}

cudaError_t Engine::queue(CUstream_st& stream, Operation operation) {
  if (device_error(stream.device) != cudaSuccess) return device_error(stream.device);
  for (const Range& range : operation.ranges) {
    if (range.bytes == 0 || memory.holds(range.begin, range.bytes)) continue;
    problem(fmt::format("{} touches {} bytes at {}, which are no memory of a device and not pinned",
                        operation.name, range.bytes, range.begin));
    fail(stream.device, cudaErrorIllegalAddress);
    return cudaSuccess;  // as on a GPU, where it is found when it runs
  }
  stream.clock.join(host_clock_);
  (void)stream.clock.tick(stream.number);
  for (const std::string& conflict :
       accesses.add(stream.number, stream.clock, operation.name, operation.ranges))
    problem(conflict);
  stream.entries.push_back({next_order_++, std::move(operation), nullptr, nullptr});
  ++changes_;
  changed_.notify_all();
  return cudaSuccess;
}

std::shared_ptr<Completion> Engine::record(CUstream_st& stream) {
  auto point = std::make_shared<Completion>();
  point->stream = &stream;
  point->clock = stream.clock;
  stream.entries.push_back({next_order_++, {}, nullptr, point});
  settle();
  return point;
}

void Engine::wait(CUstream_st& stream, const std::shared_ptr<Completion>& point) {
  stream.clock.join(point->clock);
  if (!point->done) stream.entries.push_back({next_order_++, {}, point, nullptr});
}

void Engine::fail(int device, cudaError_t error) {
  if (state(device).error == cudaSuccess) state(device).error = error;
  // What was queued never runs, and nobody waits for it.
  for (CUstream_st* stream : streams) {
    if (stream->device != device) continue;
    for (auto& entry : stream->entries) {
      if (entry.completes) {
        entry.completes->done = true;
        entry.completes->stream = nullptr;
      }
    }
    // The operation that runs now is at the head, and takes itself off.
    const bool keeps_head = state(device).running == stream;
    stream->entries.resize(keeps_head ? 1 : 0);
  }
  ++changes_;
  changed_.notify_all();
}

}  // namespace zeroplan::emulation
