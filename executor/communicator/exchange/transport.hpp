#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/communicator/failure.hpp"
#include "executor/communicator/ledger.hpp"

namespace zeroplan::executor::exchange {

// The messages between a rank and the others of its group: what differs between communicators whose ranks are
// processes. Implementations: mpi/, sockets/. Ranks are numbered as in the group.
//
// Messages of one call are announced with send() and receive() and are on their way until wait(); memory must
// stay until then. Messages from one rank to another come in the order in which they were sent, and each says
// of which call it is, so that ranks that are out of step find out from the messages they have to exchange
// anyway. Vectors may be longer than 2^31 bytes, or empty: an empty message still comes.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::int64_t rank() const = 0;
  virtual std::int64_t size() const = 0;

  virtual void send(const Call& call, const std::byte* from, Bytes bytes, std::int64_t to) = 0;
  virtual void receive(std::byte* to, Bytes bytes, std::int64_t from) = 0;
  // Until all messages have come and gone. Ends the run when one does not come within the timeout, is of
  // another call or has another length.
  virtual void wait(const Call& call) = 0;

  // Of all messages so far, what has left this rank: counted when it does, headers aside.
  virtual Bytes sent_bytes() const = 0;

  // The messages of a group of some ranks of this one, in the given order, with this rank among them. All
  // ranks of the new group call it in the same `call`, and those of other groups with theirs.
  virtual std::unique_ptr<Transport> split(const Call& call, const std::vector<std::int64_t>& ranks) = 0;

  virtual void abort(const std::string& reason) = 0;
  virtual void set_activity(Activity activity) = 0;
  // As DataPlaneCapabilities::runs_beside.
  virtual bool runs_beside() const { return false; }
};

// Text that is the same for every transport. Ranks are those that the user knows: of the whole run.

// "rank 2 was at: matmul".
std::string activity_text(std::int64_t rank, const std::string& activity);

// What the rank `own`, waiting in `call`, says of those that did not come to it.
std::string missing_text(const std::vector<std::int64_t>& missing, std::chrono::milliseconds timeout,
                         const Call& call, std::int64_t own);

// What the rank `own`, in `call`, says of `other`, which is in `theirs`: text_of(its call), or the
// difference.
std::string out_of_step_text(std::int64_t own, const Call& call, std::int64_t other,
                             const std::string& theirs);

}  // namespace zeroplan::executor::exchange
