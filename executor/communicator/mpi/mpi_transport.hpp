#pragma once

#include <memory>
#include <vector>

#include "executor/communicator/exchange/transport.hpp"
#include "executor/communicator/mpi/mpi_calls.hpp"
#include "executor/communicator/mpi/mpi_communicator.hpp"

namespace zeroplan::executor::mpi {

// What all groups of this process share.
struct Session {
  explicit Session(const MpiOptions& mpi_options) : options(mpi_options) {}

  MpiOptions options;
  ActivityBoard activities;
  bool runs_beside = false;  // this MPI can be called from several threads at a time
};

// The messages of a group of MPI's processes. Every message carries the call in its tag. What ends the run
// ends all processes.
class MpiTransport final : public exchange::Transport {
 public:
  // `members`: ranks of MPI_COMM_WORLD, by their rank in `communicator`, which it takes over.
  MpiTransport(std::shared_ptr<Session> session, MPI_Comm communicator, std::vector<int> members);

  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(members_.size()); }

  void send(const Call& call, const std::byte* from, Bytes bytes, std::int64_t to) override;
  void receive(std::byte* to, Bytes bytes, std::int64_t from) override;
  void wait(const Call& call) override;
  Bytes sent_bytes() const override { return sent_bytes_; }
  std::unique_ptr<Transport> split(const Call& call, const std::vector<std::int64_t>& ranks) override;
  void abort(const std::string& reason) override;
  bool runs_beside() const override { return session_->runs_beside; }
  void set_activity(Activity activity) override { session_->activities.set(std::move(activity)); }

 private:
  struct Message {
    std::int64_t rank = 0;  // of the group
    Bytes bytes = 0;
    bool received = false;
  };

  int member(std::int64_t rank) const { return members_[static_cast<std::size_t>(rank)]; }
  void check_message(const Call& call, const Message& message, const MPI_Status& status) const;
  [[noreturn]] void end_after_timeout(const Call& call) const;

  std::shared_ptr<Session> session_;
  CommunicatorHandle communicator_;
  std::vector<int> members_;
  std::int64_t rank_ = 0;
  std::vector<MPI_Request> requests_;
  std::vector<Message> messages_;  // of requests_
  Bytes sent_bytes_ = 0;           // of messages that MPI has sent
  std::vector<int> done_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace zeroplan::executor::mpi
