#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "executor/communicator/exchange/transport.hpp"
#include "executor/communicator/sockets/control.hpp"
#include "executor/communicator/sockets/socket.hpp"

// The data. For the implementation of sockets/ only.
namespace zeroplan::executor::sockets {

// Before the bytes of every message: all that must be the same on both sides. Its bytes are sent as they are.
struct Header {
  std::uint64_t group = 0;
  std::uint64_t sequence = 0;
  std::int64_t elements = 0;
  std::int64_t root = 0;
  std::int64_t bytes = 0;
  std::uint8_t kind = 0, reduction = 0, type = 0;
  std::uint8_t unused[5] = {};

  bool operator==(const Header&) const = default;
};
static_assert(sizeof(Header) == 48);

// The messages between this rank and one other, of all groups that both are in.
class Channel {
 public:
  explicit Channel(Socket socket) : socket_(std::move(socket)) {}

  void send(const Header& header, const std::byte* from);
  void receive(std::byte* to, Bytes bytes);

  bool sending() const { return next_outgoing_ < outgoing_.size(); }
  bool receiving() const { return next_incoming_ < incoming_.size(); }
  int descriptor() const { return socket_.get(); }

  // Moves what can be moved without waiting, up to one message. True where that was something.
  bool send_some();
  // The same, and the header of a message as soon as it is there whole: for the caller to compare.
  bool receive_some(std::optional<Header>& header);
  // The bytes that the message is expected to have whose header receive_some() just gave.
  Bytes expected_bytes() const { return expected_bytes_; }
  bool closed() const { return closed_; }
  // What the system has taken of the messages, without their headers.
  Bytes sent_bytes() const { return sent_bytes_; }

 private:
  struct Outgoing {
    Header header;
    const std::byte* from = nullptr;
    std::size_t sent = 0;  // with the header
  };
  struct Incoming {
    Header header;
    std::byte* to = nullptr;
    Bytes bytes = 0;
    std::size_t received = 0;  // with the header
  };

  Socket socket_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::size_t next_outgoing_ = 0, next_incoming_ = 0;
  Bytes expected_bytes_ = 0;
  Bytes sent_bytes_ = 0;
  bool closed_ = false;
};

// What all groups of this process share.
struct Session {
  const SocketOptions& options;
  Control& control;
  std::vector<Channel> channels;  // by rank of the run
};

class SocketTransport final : public exchange::Transport {
 public:
  // `members`: ranks of the run, by their rank in the group. `group`: a number that only its members have.
  SocketTransport(std::shared_ptr<Session> session, std::uint64_t group, std::vector<std::int64_t> members,
                  std::int64_t rank);

  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(members_.size()); }

  void send(const Call& call, const std::byte* from, Bytes bytes, std::int64_t to) override;
  void receive(std::byte* to, Bytes bytes, std::int64_t from) override;
  void wait(const Call& call) override;
  Bytes sent_bytes() const override;
  std::unique_ptr<Transport> split(const Call& call, const std::vector<std::int64_t>& ranks) override;
  void abort(const std::string& reason) override;
  void set_activity(Activity activity) override;
  // Two groups of a rank have no other rank in common but the run, so no channel either.
  bool runs_beside() const override { return true; }

 private:
  std::int64_t member(std::int64_t rank) const { return members_[static_cast<std::size_t>(rank)]; }
  Channel& channel(std::int64_t rank) const {
    return session_->channels[static_cast<std::size_t>(member(rank))];
  }
  Header header_of(const Call& call, Bytes bytes) const;
  bool move_some(const Call& call, std::int64_t rank);
  void wait_until_ready(Clock::time_point deadline);
  void require_same(const Call& call, const Header& theirs, Bytes bytes, std::int64_t rank) const;
  [[noreturn]] void stop_after_timeout(const Call& call) const;
  [[noreturn]] void stop(std::string text, std::vector<std::int64_t> about) const;

  std::shared_ptr<Session> session_;
  std::uint64_t group_;
  std::vector<std::int64_t> members_;
  std::int64_t rank_;
  std::vector<std::int64_t> open_;  // ranks of the group with messages on their way
};

}  // namespace zeroplan::executor::sockets
