#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "executor/communicator/sockets/socket.hpp"

// The small messages beside the data: rendezvous, signs of life, failures. For the implementation of sockets/
// only.
namespace zeroplan::executor::sockets {

enum class FrameKind : std::uint8_t {
  greeting,      // rank 0 to whoever connects: protocol, version, a nonce to prove the secret with
  hello,         // rank to rank 0: version, rank, size, port, what it runs, a nonce, a proof
  refused,       // rank 0: why the rank that said hello is not let in, or why there will be no run
  table,         // rank 0: the addresses of all
  peer,          // rank to rank: who opens this connection
  alive,         // sign of life
  activity,      // the same, with what the sender is doing
  failure,       // rank to rank 0: what it found, or how it failed
  returned,      // rank to rank 0: its work is done
  verdict,       // rank 0: the failure that ends the run on every rank
  all_returned,  // rank 0: the run is over
};

// Numbers and texts one behind another, in the byte order of the hosts: `greeting` and `hello` begin with a
// number that says whether they have the same.
class Frame {
 public:
  explicit Frame(FrameKind kind) : kind_(kind) {}
  Frame(FrameKind kind, std::string body) : kind_(kind), body_(std::move(body)) {}

  FrameKind kind() const { return kind_; }
  const std::string& body() const { return body_; }

  Frame& put(std::int64_t number);
  Frame& put(std::string_view text);

  // In the order in which they were put in. CommunicationError where there is no such thing left.
  std::int64_t number();
  std::string text();
  // All that was read so far.
  std::string_view read_part() const { return std::string_view(body_).substr(0, read_); }

 private:
  std::string_view take(std::size_t bytes);

  FrameKind kind_;
  std::string body_;
  std::size_t read_ = 0;
};

// A connection that carries frames. Never blocks.
class FrameStream {
 public:
  explicit FrameStream(Socket socket = Socket()) : socket_(std::move(socket)) {}

  const Socket& socket() const { return socket_; }
  Socket take_socket() && { return std::move(socket_); }
  // The other side is known now: its frames may be as long as a table of thousands of ranks.
  void trust() { trusted_ = true; }
  bool open() const { return static_cast<bool>(socket_) && !closed_; }
  bool has_to_write() const { return open() && !out_.empty(); }

  // Sends what the connection takes now; the rest goes with flush().
  void send(const Frame& frame);
  void flush();
  // Nothing is sent after this; the other side reads the end of the stream.
  void end_sending();

  // A frame that has come whole, and not a byte more than it. Nothing where it has not, and when the stream
  // has ended or is none of frames: open() is false then.
  std::optional<Frame> receive();

 private:
  Socket socket_;
  std::string in_, out_;
  bool closed_ = false, trusted_ = false;
};

}  // namespace zeroplan::executor::sockets
