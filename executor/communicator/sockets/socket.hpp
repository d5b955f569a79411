#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

struct pollfd;

// TCP sockets of this process. For the implementation of sockets/ only.
namespace zeroplan::executor::sockets {

using Clock = std::chrono::steady_clock;

// A file descriptor that is closed with this object.
class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  ~Socket();
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

struct Address {
  std::string host;  // a name, or numbers
  int port = 0;

  std::string text() const;  // "localhost:29500", "[::1]:29500"
};

// Whether it is a name or address of this host alone, by its spelling: localhost, 127.*, ::1.
bool is_loopback(const std::string& host);

// "Connection refused": what errno says.
std::string system_text(int error);

// Listens at a port (0: any that is free) of the first address of `host` that is this host's. Throws
// CommunicationError.
Socket listen_at(const Address& address, int backlog);
int port_of(const Socket& listener);

// A connection that waits to be accepted; or none, and then errno says why.
Socket accept_one(const Socket& listener);

// Connects until the deadline, and tries again where `retry` and nobody listens yet. Throws
// CommunicationError that says of whom and why: "rank 2 could not reach rank 0 at ...".
Socket connect_to(const Address& address, Clock::time_point deadline, bool retry, const std::string& what);

std::string local_host(const Socket& connection);
std::string peer_host(const Socket& connection);

// Whether a call that does not wait failed only because it would have to.
bool would_block(int error);

// What poll() takes.
pollfd ready_when(int descriptor, bool readable, bool writable);

// poll() until one of them is ready or the deadline is past; false for the latter. Signals do not end it.
bool poll_until(std::vector<pollfd>& descriptors, Clock::time_point deadline);

}  // namespace zeroplan::executor::sockets
