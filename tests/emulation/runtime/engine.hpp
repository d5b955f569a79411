#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/fence.hpp"
#include "runtime/machine.hpp"
#include "runtime/memory.hpp"
#include "runtime/queue.hpp"
#include "runtime/races.hpp"

// Streams of emulated GPUs and what runs them. Nothing runs when it is queued: the host calls that wait run what they
// wait for, in the order of the schedule, and a thread of the emulation runs when the host has long called nothing.
namespace zeroplan::emulation {

using SteadyClock = std::chrono::steady_clock;

// A point in a stream.
struct Completion {
  CUstream_st* stream = nullptr;  // nullptr when it is done
  bool done = false;
  SteadyClock::time_point at{};
  Clock clock;
};

struct Operation {
  const char* name = "";
  std::function<void()> run;
  std::function<bool()> ready;
  std::vector<Range> ranges;
};

struct Capture;

}  // namespace zeroplan::emulation

struct CUstream_st {
  std::size_t number = 0;  // of all streams, from 0
  int device = 0;
  bool hidden = false;  // a graph's
  bool defaulted = false;

  // An operation, a wait for a point, or a point.
  struct Entry {
    std::uint64_t order = 0;
    zeroplan::emulation::Operation operation;
    std::shared_ptr<zeroplan::emulation::Completion> waits, completes;
  };
  std::deque<Entry> entries;
  zeroplan::emulation::Clock clock;
  std::shared_ptr<zeroplan::emulation::Capture> capture;
  std::thread::id capture_thread;  // that began the capture here
};

struct CUevent_st {
  bool timed = true;
  std::shared_ptr<zeroplan::emulation::Completion> recorded;  // last; nullptr: never
  std::weak_ptr<zeroplan::emulation::Capture> capture;
  std::size_t captured_number = 0;
  bool captured = false;  // it was recorded last in a capture
};

namespace zeroplan::emulation {

class Engine {
 public:
  Engine();
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  using Lock = std::unique_lock<std::mutex>;
  std::mutex mutex;  // guards everything; the functions below want it held

  // Waits until nothing runs.
  void reset(Lock& lock, const MachineOptions& options, bool collects);

  // Of a call of the runtime: an injected error, the driver's, the calling thread's device's sticky one.
  cudaError_t before(const char* call);
  cudaError_t device_error(int device) const { return devices_[static_cast<std::size_t>(device)].error; }
  int devices() const { return static_cast<int>(options_.gpus.size()); }
  const Gpu& gpu(int device) const { return options_.gpus[static_cast<std::size_t>(device)]; }

  CUstream_st* make_stream(int device, bool hidden);
  // Waits until it is empty.
  void destroy_stream(Lock& lock, CUstream_st* stream);
  // nullptr for what is no stream.
  CUstream_st* stream_of(cudaStream_t stream);

  // ---- What is queued, not captured ----
  cudaError_t queue(CUstream_st& stream, Operation operation);
  std::shared_ptr<Completion> record(CUstream_st& stream);
  void wait(CUstream_st& stream, const std::shared_ptr<Completion>& point);

  // ---- What waits ----
  // Runs until the point is reached, or its device has an error.
  void reach(Lock& lock, const std::shared_ptr<Completion>& point);
  void reach_all(Lock& lock, int device);
  // For a call that looks whether something is done: does a bit of work, so that looking again and again ends.
  void help(Lock& lock, const std::shared_ptr<Completion>& point);
  // The host knows that the point is reached.
  void join_host(const Completion& point) { host_clock_.join(point.clock); }

  void problem(const std::string& text);
  // The calling thread's device, which is 0 on a machine that it has not called yet.
  int current_device();

  Memory memory;
  Accesses accesses;
  std::set<CUstream_st*> streams;
  std::set<CUevent_st*> events;
  std::set<const void*> graphs;
  std::vector<std::string> problems;
  std::vector<std::string> history;

  std::vector<Injection> failing_calls, failing_operations;  // their n counts down

 private:
  struct DeviceState {
    const CUstream_st* running = nullptr;  // one operation at a time, so that a seed says the order
    cudaError_t error = cudaSuccess;
    CUstream_st* default_stream = nullptr;
    std::mt19937_64 random;
  };

  DeviceState& state(int device) { return devices_[static_cast<std::size_t>(device)]; }
  std::vector<CUstream_st*> streams_of(int device) const;
  // Takes points and waits that need no running off the heads of all streams, until there are none.
  void settle();
  bool runnable(const CUstream_st& stream) const;
  // Whether an operation runs that keeps others of the device from running.
  bool busy(int device) const;
  CUstream_st* pick(int device, const Completion* goal);
  CUstream_st* pick_late(const Completion& goal) const;
  CUstream_st* pick_elsewhere(int device);
  void run_head(Lock& lock, CUstream_st& stream);
  void run_operation(Lock& lock, CUstream_st& stream, Operation& operation);
  void fail(int device, cudaError_t error);
  std::string what_waits() const;
  void serve_idle();

  MachineOptions options_;
  bool collects_ = false;
  std::vector<DeviceState> devices_;
  std::size_t next_stream_ = 0;
  std::uint64_t next_order_ = 0;
  Clock host_clock_;
  std::condition_variable changed_, stopped_;
  std::uint64_t generation_ = 0;  // of machines
  std::uint64_t changes_ = 0;
  std::uint64_t calls_ = 0;
  int waiting_ = 0;  // threads of the host that wait
  bool stops_ = false;
  std::thread idle_;
};

Engine& engine();

// Of the calling thread.
struct HostThread {
  std::uint64_t generation = 0;  // of the machine that the rest is of
  int device = 0;
  cudaError_t last_error = cudaSuccess;
  bool in_host_function = false;
};
HostThread& host_thread();

// What a function of the runtime does: body(engine, lock) unless the call is to fail.
template <class Body>
cudaError_t runtime_call(const char* name, const Body& body) {
  Engine& the = engine();
  Engine::Lock lock(the.mutex);
  cudaError_t error = the.before(name);
  if (error == cudaSuccess) error = body(the, lock);
  if (error != cudaSuccess) host_thread().last_error = error;
  return error;
}

// The same of a function that gives something back. After a sticky error CUDA answers with it and only the end of the process
// gives anything back; that the program asked is done here, so that what it forgets is seen.
template <class Body>
cudaError_t release_call(const char* name, const Body& body) {
  Engine& the = engine();
  Engine::Lock lock(the.mutex);
  cudaError_t error = the.before(name);
  const bool sticky =
      error != cudaSuccess && the.devices() > 0 && error == the.device_error(the.current_device());
  if (error == cudaSuccess || sticky) {
    const cudaError_t own = body(the, lock);
    if (!sticky) error = own;
  }
  if (error != cudaSuccess) host_thread().last_error = error;
  return error;
}

}  // namespace zeroplan::emulation
