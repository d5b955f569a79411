#pragma once

// The C++ bindings that MPI once had are not used, and do not compile without warnings.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "executor/communicator/communicator.hpp"

// MPI's handles and errors. For the implementation of mpi/ only.
namespace zeroplan::executor::mpi {

inline constexpr int kExitBadInput = 2;
inline constexpr int kExitNotPossible = 3;
inline constexpr int kExitRunFailed = 4;

// Writes to stderr and ends all processes.
[[noreturn]] void end_all(const std::string& message, int exit_code = kExitRunFailed);

// Ends all processes when MPI reports an error.
void check(int result, const char* call);

class CommunicatorHandle {
 public:
  explicit CommunicatorHandle(MPI_Comm handle);  // takes it over
  ~CommunicatorHandle();
  CommunicatorHandle(const CommunicatorHandle&) = delete;
  CommunicatorHandle& operator=(const CommunicatorHandle&) = delete;

  MPI_Comm get() const { return handle_; }

 private:
  MPI_Comm handle_;
};

// What each process on this host is doing, in memory that they share: a rank that does not come can no longer
// be asked. A thread of its own writes it anew every now and then.
class ActivityBoard {
 public:
  ActivityBoard();
  ~ActivityBoard();
  ActivityBoard(const ActivityBoard&) = delete;
  ActivityBoard& operator=(const ActivityBoard&) = delete;

  void set(Activity activity);
  // "rank 2 was at: matmul". `rank` of MPI_COMM_WORLD.
  std::string text(int rank) const;

 private:
  void write(const std::string& activity);
  void rewrite();

  MPI_Win window_ = MPI_WIN_NULL;
  char* own_ = nullptr;
  std::vector<const char*> boards_;  // by rank of MPI_COMM_WORLD; null where its memory is not shared
  std::mutex mutex_;                 // guards what follows, and writing
  std::condition_variable changed_;
  Activity activity_;
  bool ended_ = false;
  std::jthread writer_;
};

}  // namespace zeroplan::executor::mpi
