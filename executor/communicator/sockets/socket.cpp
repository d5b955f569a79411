#include "executor/communicator/sockets/socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>
#include <thread>

#include "executor/error.hpp"

namespace zeroplan::executor::sockets {

namespace {

constexpr auto kRetryAfter = std::chrono::milliseconds(20);

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList resolve(const Address& address, std::string& problem) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int result =
      getaddrinfo(address.host.c_str(), fmt::format("{}", address.port).c_str(), &wanted, &found);
  if (result != 0) problem = result == EAI_SYSTEM ? system_text(errno) : gai_strerror(result);
  return {result == 0 ? found : nullptr, &freeaddrinfo};
}

Socket open_socket(int family) {
  return Socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

void set_option(const Socket& socket, int level, int option, int value) {
  // What cannot be set costs speed or convenience, not correctness.
  (void)::setsockopt(socket.get(), level, option, &value, sizeof value);
}

// 0, or errno.
int connect_once(const Socket& socket, const addrinfo& to, Clock::time_point deadline) {
  if (::connect(socket.get(), to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  std::vector<pollfd> descriptors{ready_when(socket.get(), false, true)};
  if (!poll_until(descriptors, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error;
}

using Name = int (*)(int, sockaddr*, socklen_t*);

// Of one end of a socket, in numbers.
Address address_of(const Socket& socket, Name name) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "0";
  if (name(socket.get(), address, &length) != 0 ||
      ::getnameinfo(address, length, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) !=
          0) {
    throw CommunicationError("a connection does not know its address: " + system_text(errno));
  }
  return {.host = host, .port = std::stoi(port)};
}

}  // namespace

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

std::string Address::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

bool is_loopback(const std::string& host) {
  // Numbers, or a name that begins like one: 127.example.com is somebody's host.
  in_addr address{};
  const bool is_number = ::inet_pton(AF_INET, host.c_str(), &address) == 1;
  return host == "localhost" || host == "::1" || (is_number && host.starts_with("127."));
}

std::string system_text(int error) { return std::system_category().message(error); }

Socket listen_at(const Address& address, int backlog) {
  std::string problem;
  const AddressList list = resolve(address, problem);
  for (const addrinfo* candidate = list.get(); candidate != nullptr; candidate = candidate->ai_next) {
    Socket socket = open_socket(candidate->ai_family);
    if (socket) {
      // Connections of an earlier run that are not forgotten yet must not keep its port.
      set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
      if (candidate->ai_family == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
      if (::bind(socket.get(), candidate->ai_addr, candidate->ai_addrlen) == 0 &&
          ::listen(socket.get(), backlog) == 0) {
        return socket;
      }
    }
    problem = system_text(errno);
  }
  throw CommunicationError(fmt::format("cannot listen at {}: {}", address.text(), problem));
}

int port_of(const Socket& listener) { return address_of(listener, &::getsockname).port; }
std::string local_host(const Socket& connection) { return address_of(connection, &::getsockname).host; }
std::string peer_host(const Socket& connection) { return address_of(connection, &::getpeername).host; }

Socket accept_one(const Socket& listener) {
  Socket connection(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (connection) set_option(connection, IPPROTO_TCP, TCP_NODELAY, 1);
  return connection;
}

Socket connect_to(const Address& address, Clock::time_point deadline, bool retry, const std::string& what) {
  const auto start = Clock::now();
  std::string problem;
  do {
    const AddressList list = resolve(address, problem);
    for (const addrinfo* candidate = list.get(); candidate != nullptr; candidate = candidate->ai_next) {
      Socket socket = open_socket(candidate->ai_family);
      const int error = socket ? connect_once(socket, *candidate, deadline) : errno;
      if (error == 0) {
        set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
        return socket;
      }
      problem = system_text(error);
    }
    if (retry) std::this_thread::sleep_for(kRetryAfter);
  } while (retry && Clock::now() < deadline);
  throw CommunicationError(fmt::format("{} at {} within {:.1f} s: {}", what, address.text(),
                                       std::chrono::duration<double>(Clock::now() - start).count(), problem));
}

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

pollfd ready_when(int descriptor, bool readable, bool writable) {
  const int events = (readable ? POLLIN : 0) | (writable ? POLLOUT : 0);
  return {.fd = descriptor, .events = static_cast<decltype(pollfd::events)>(events), .revents = 0};
}

bool poll_until(std::vector<pollfd>& descriptors, Clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int wait = static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000));
    const int ready = ::poll(descriptors.data(), descriptors.size(), wait);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw CommunicationError("poll: " + system_text(errno));
    if (ready == 0 && Clock::now() >= deadline) return false;
  }
}

}  // namespace zeroplan::executor::sockets
