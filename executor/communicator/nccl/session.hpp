#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "executor/communicator/control_plane.hpp"
#include "executor/communicator/ledger.hpp"
#include "executor/communicator/nccl/nccl_planes.hpp"
#include "executor/device/cuda/cuda_streams.hpp"

namespace zeroplan::executor::nccl {

// All communicators of a rank, and the thread that watches them. For the implementation of nccl/ only.
class Session {
 public:
  Session(ControlPlane& world, CudaStreams& streams, const NcclOptions& options);
  // Ends the communicators together with the other ranks', and gives them up where those do not come or this rank has failed.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Of the communicators, 0 is all ranks'. All ranks must call it.
  std::size_t split(std::int64_t color, std::int64_t key);

  // Issues a call to the stream, after the last one of any communicator. call(communicator, stream) makes it.
  template <class Function>
  void issue(std::size_t communicator, const Call& what, program::Stream stream, const Watch& watch,
             const Function& call) {
    const std::lock_guard lock(mutex_);
    cudaStream_t on = begin(what, stream, watch);
    settle(communicator, call(communicators_[communicator], on), what);
    end(stream, on, watch);
  }

  // Of all communicators but the first. All ranks call it with blocks of one size, before the first call.
  void use_as_window(std::span<std::byte> block);

  // "NCCL 2.27.3, the arena is a window of its communicators".
  std::string text() const { return text_; }

 private:
  using Clock = std::chrono::steady_clock;
  // A call that the device was not seen to have ended.
  struct Running {
    cudaEvent_t begun = nullptr, ended = nullptr;
    Call what;
  };

  // Whether the stream is captured: what the device runs is then known to the graph alone.
  static bool captures(cudaStream_t stream);
  cudaStream_t begin(const Call& what, program::Stream stream, const Watch& watch);
  void end(program::Stream stream, cudaStream_t on, const Watch& watch);
  // Waits until NCCL has taken the call. Throws, and gives up, where it does not.
  void settle(std::size_t communicator, ncclResult_t result, const Call& what);
  void settle(std::size_t communicator, ncclResult_t result, const std::string& what);
  ncclResult_t state_of(std::size_t communicator, Clock::time_point deadline);
  [[noreturn]] void give_up_late(const std::string& what);
  [[noreturn]] void give_up(const std::string& reason);
  void abort() noexcept;
  void finalize() noexcept;
  void watch(const std::stop_token& stopped);
  void look(Clock::time_point& since);
  void forget_ended();
  cudaEvent_t event();

  std::int64_t rank_;
  std::string text_;
  CudaStreams& streams_;
  NcclOptions options_;
  std::mutex mutex_;  // guards what follows
  std::exception_ptr failure_;
  std::deque<ncclComm_t> communicators_;  // whose places stay where they are
  std::vector<void*> windows_;            // by communicator, once there is one
  std::deque<Running> running_;
  std::vector<cudaEvent_t> free_;
  cudaStream_t last_stream_ = nullptr;
  std::jthread watcher_;
};

}  // namespace zeroplan::executor::nccl
