#include "executor/communicator/nccl/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <span>

#include "executor/device/cuda/errors.hpp"
#include "executor/error.hpp"

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
#define ZEROPLAN_NCCL_WINDOWS
// An older library than was compiled against may be there.
// NOLINTBEGIN(readability-redundant-declaration, readability-identifier-naming): NVIDIA's, declared again to be weak
extern "C" {
__attribute__((weak)) ncclResult_t ncclMemAlloc(void** ptr, size_t size);
__attribute__((weak)) ncclResult_t ncclMemFree(void* ptr);
__attribute__((weak)) ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size,
                                                          ncclWindow_t* win, int winFlags);
__attribute__((weak)) ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);
}
// NOLINTEND(readability-redundant-declaration, readability-identifier-naming)
#endif

namespace zeroplan::executor {

namespace nccl {

using cuda::check;

namespace {

constexpr int kOldest = NCCL_VERSION(2, 18, 0);

std::string text_of_version(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

// Returns the version.
int check_version(ControlPlane& world) {
  int version = 0;
  ncclGetVersion(&version);
  const std::vector<int> versions = gathered(world, version);
  for (std::size_t rank = 0; rank < versions.size(); ++rank) {
    if (versions[rank] >= kOldest && versions[rank] == versions[0]) continue;
    throw NotPossible(
        fmt::format("rank {} has NCCL {}: all ranks need the same one, {} or newer (rank 0 has {})", rank,
                    text_of_version(versions[rank]), text_of_version(kOldest), text_of_version(versions[0])));
  }
  return version;
}

ncclConfig_t configuration() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 1;
  return config;
}

}  // namespace

Session::Session(ControlPlane& world, CudaStreams& streams, const NcclOptions& options)
    : rank_(world.rank()), streams_(streams), options_(options) {
  text_ = fmt::format("NCCL {}", text_of_version(check_version(world)));
  check(cudaSetDevice(streams.ordinal()), "cudaSetDevice");
  ncclUniqueId id{};
  const ncclResult_t made = world.rank() == 0 ? ncclGetUniqueId(&id) : ncclSuccess;
  world.share(std::as_writable_bytes(std::span(&id, 1)), 0);
  if (made != ncclSuccess)
    throw CommunicationError(fmt::format("NCCL makes no id: {}", ncclGetErrorString(made)));
  ncclConfig_t config = configuration();
  const std::lock_guard lock(mutex_);
  const ncclResult_t result =
      ncclCommInitRankConfig(&communicators_.emplace_back(), static_cast<int>(world.size()), id,
                             static_cast<int>(world.rank()), &config);
  settle(0, result, fmt::format("starting {} ranks", world.size()));
  watcher_ = std::jthread([this](const std::stop_token& stopped) { watch(stopped); });
}

Session::~Session() {
  watcher_.request_stop();
  if (watcher_.joinable()) watcher_.join();
  const std::lock_guard lock(mutex_);
  if (failure_ || std::uncaught_exceptions() > 0) {
    abort();
  } else {
    finalize();
  }
  for (const Running& call : running_) {
    cudaEventDestroy(call.begun);
    cudaEventDestroy(call.ended);
  }
  for (cudaEvent_t one : free_) cudaEventDestroy(one);
}

std::size_t Session::split(std::int64_t color, std::int64_t key) {
  ncclConfig_t config = configuration();
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  ncclComm_t& made = communicators_.emplace_back();
  settle(0, ncclCommSplit(communicators_[0], static_cast<int>(color), static_cast<int>(key), &made, &config),
         std::string("splitting a group off"));
  settle(communicators_.size() - 1, ncclSuccess, std::string("starting a group"));
  return communicators_.size() - 1;
}

bool Session::captures(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

cudaStream_t Session::begin(const Call& what, program::Stream stream, const Watch& watch) {
  if (failure_) std::rethrow_exception(failure_);
  cudaStream_t on = streams_.start(stream, watch);
  if (captures(on)) return on;
  if (!running_.empty() && last_stream_ != on) {
    check(cudaStreamWaitEvent(on, running_.back().ended, 0), "cudaStreamWaitEvent");
  }
  forget_ended();
  running_.push_back({event(), event(), what});
  check(cudaEventRecord(running_.back().begun, on), "cudaEventRecord");
  return on;
}

void Session::end(program::Stream stream, cudaStream_t on, const Watch& watch) {
  if (!captures(on)) {
    check(cudaEventRecord(running_.back().ended, on), "cudaEventRecord");
    last_stream_ = on;
  }
  streams_.finish(stream, watch);
}

void Session::forget_ended() {
  while (!running_.empty() && cudaEventQuery(running_.front().ended) == cudaSuccess) {
    free_.push_back(running_.front().begun);
    free_.push_back(running_.front().ended);
    running_.pop_front();
  }
}

cudaEvent_t Session::event() {
  cudaEvent_t made = nullptr;
  if (free_.empty()) {
    check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  } else {
    made = free_.back();
    free_.pop_back();
  }
  return made;
}

void Session::settle(std::size_t communicator, ncclResult_t result, const Call& what) {
  // The text is made where it is needed: this is on the way of every collective.
  if (result == ncclSuccess || result == ncclInProgress)
    result = state_of(communicator, Clock::now() + options_.timeout);
  if (result != ncclSuccess) settle(communicator, result, text_of(what));
}

void Session::settle(std::size_t communicator, ncclResult_t result, const std::string& what) {
  if (result == ncclSuccess || result == ncclInProgress)
    result = state_of(communicator, Clock::now() + options_.timeout);
  if (result == ncclSuccess) return;
  if (result == ncclInProgress) give_up_late(what);
  const char* last = ncclGetLastError(communicators_[communicator]);
  give_up(fmt::format("NCCL: {}: {}{}{}", what, ncclGetErrorString(result),
                      last != nullptr && *last != 0 ? ": " : "", last != nullptr ? last : ""));
}

ncclResult_t Session::state_of(std::size_t communicator, Clock::time_point deadline) {
  for (int asked = 0;; ++asked) {
    ncclResult_t state = ncclInProgress;
    // NCCL fills the place of a communicator when it has it, on a thread of its own.
    ncclComm_t made = std::atomic_ref(communicators_[communicator]).load(std::memory_order_acquire);
    const ncclResult_t result = made != nullptr ? ncclCommGetAsyncError(made, &state) : ncclSuccess;
    if (result != ncclSuccess) return result;
    if (state != ncclInProgress || Clock::now() > deadline) return state;
    if (asked < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

void Session::give_up_late(const std::string& what) {
  give_up(fmt::format("NCCL: {}: the other ranks did not come within {} s", what,
                      std::chrono::duration<double>(options_.timeout).count()));
}

void Session::give_up(const std::string& reason) {
  failure_ = std::make_exception_ptr(CommunicationError(reason));
  streams_.fail(failure_);
  abort();
  std::rethrow_exception(failure_);
}

void Session::abort() noexcept {
  for (auto one = communicators_.rbegin(); one != communicators_.rend(); ++one) {
    if (*one != nullptr) ncclCommAbort(*one);
  }
  communicators_.clear();
}

void Session::finalize() noexcept {
  const auto deadline = Clock::now() + options_.finalize_timeout;
  while (!communicators_.empty()) {
    const std::size_t last = communicators_.size() - 1;
    ncclComm_t communicator = communicators_[last];
#ifdef ZEROPLAN_NCCL_WINDOWS
    if (last < windows_.size() && windows_[last] != nullptr) {
      ncclCommWindowDeregister(communicator, static_cast<ncclWindow_t>(windows_[last]));
    }
#endif
    ncclResult_t result = ncclCommFinalize(communicator);
    if (result == ncclSuccess || result == ncclInProgress) result = state_of(last, deadline);
    if (result != ncclSuccess) return abort();
    ncclCommDestroy(communicator);
    communicators_.pop_back();
  }
}

void Session::watch(const std::stop_token& stopped) {
  cudaSetDevice(streams_.ordinal());
  const auto interval =
      std::clamp(options_.timeout / 20, std::chrono::milliseconds(1), std::chrono::milliseconds(250));
  Clock::time_point since =
      Clock::time_point::max();  // when the first running call was first seen to have begun
  cudaEvent_t of = nullptr;
  while (!stopped.stop_requested()) {
    std::this_thread::sleep_for(interval);
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    forget_ended();
    if (cudaEvent_t first = running_.empty() ? nullptr : running_.front().ended; first != of) {
      of = first;
      since = Clock::time_point::max();
    }
    try {
      look(since);
    } catch (...) {
      return;  // the device has it
    }
  }
}

void Session::look(Clock::time_point& since) {
  for (std::size_t i = 0; i < communicators_.size(); ++i) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = ncclCommGetAsyncError(communicators_[i], &state);
    if (result != ncclSuccess) state = result;
    if (state == ncclSuccess || state == ncclInProgress) continue;
    settle(i, state, running_.empty() ? std::string("between calls") : text_of(running_.front().what));
  }
  if (running_.empty() || cudaEventQuery(running_.front().begun) != cudaSuccess) return;
  if (since == Clock::time_point::max()) since = Clock::now();
  if (Clock::now() - since >= options_.timeout) give_up_late(text_of(running_.front().what));
}

void Session::use_as_window([[maybe_unused]] std::span<std::byte> block) {
#ifdef ZEROPLAN_NCCL_WINDOWS
  const std::lock_guard lock(mutex_);
  windows_.assign(communicators_.size(), nullptr);
  bool all = true;
  for (std::size_t i = 1; i < communicators_.size(); ++i) {
    ncclWindow_t window = nullptr;
    settle(i,
           ncclCommWindowRegister(communicators_[i], block.data(), block.size(), &window,
                                  NCCL_WIN_COLL_SYMMETRIC),
           std::string("registering the arena"));
    windows_[i] = window;
    all = all && window != nullptr;  // there is none where the GPUs do not reach each other
  }
  if (all) text_ += ", the arena is a window of its communicators";
#endif
}

}  // namespace nccl

BlockSource nccl_blocks() {
#ifdef ZEROPLAN_NCCL_WINDOWS
  if (ncclMemAlloc != nullptr && ncclMemFree != nullptr && ncclCommWindowRegister != nullptr) {
    return {.allocate =
                [](Bytes bytes) {
                  void* block = nullptr;
                  if (ncclMemAlloc(&block, static_cast<std::size_t>(bytes)) == ncclSuccess)
                    return static_cast<std::byte*>(block);
                  (void)cudaGetLastError();  // so that a later call does not answer for this one
                  return static_cast<std::byte*>(nullptr);
                },
            .deallocate = [](std::byte* block) { (void)ncclMemFree(block); }};
  }
#endif
  return {};
}

}  // namespace zeroplan::executor
