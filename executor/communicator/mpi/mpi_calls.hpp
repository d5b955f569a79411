#pragma once

// The C++ bindings that MPI once had are not used, and do not compile without warnings.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

#include "executor/communicator/ledger.hpp"
#include "executor/communicator/mpi/mpi_communicator.hpp"

// MPI's handles and messages. For the implementation of mpi/ only.
namespace zeroplan::executor::mpi {

inline constexpr int kExitBadInput = 2;
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
// be asked.
class ActivityBoard {
 public:
  ActivityBoard();
  ~ActivityBoard();
  ActivityBoard(const ActivityBoard&) = delete;
  ActivityBoard& operator=(const ActivityBoard&) = delete;

  void write(const std::string& activity);
  // "rank 2 was at: matmul". `rank` of MPI_COMM_WORLD.
  std::string text(int rank) const;

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  char* own_ = nullptr;
  std::vector<const char*> boards_;  // by rank of MPI_COMM_WORLD; null where its memory is not shared
};

// The messages of one call between a rank and the others of its group. Every message carries the call in its
// tag, so that ranks that are out of step find out from the messages they have to exchange anyway.
class Exchange {
 public:
  // `members`: ranks of MPI_COMM_WORLD, for messages.
  Exchange(MPI_Comm communicator, const std::vector<int>& members, const ActivityBoard& activities,
           MpiOptions options);

  void send(const Call& call, const std::byte* from, Bytes bytes, std::int64_t to);
  void receive(std::byte* to, Bytes bytes, std::int64_t from);

  // Until all messages have come and gone. Ends all processes after the timeout, or when a message is of
  // another call.
  void wait(const Call& call);

 private:
  struct Message {
    std::int64_t rank = 0;  // of the group
    Bytes bytes = 0;
    bool received = false;
  };

  void check_message(const Call& call, const Message& message, const MPI_Status& status) const;
  [[noreturn]] void end_after_timeout(const Call& call) const;

  MPI_Comm communicator_;
  const std::vector<int>& members_;
  const ActivityBoard& activities_;
  MpiOptions options_;
  int own_rank_ = 0;
  std::vector<MPI_Request> requests_;
  std::vector<Message> messages_;  // of requests_
  std::vector<int> done_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace zeroplan::executor::mpi
