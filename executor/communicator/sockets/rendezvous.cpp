#include "executor/communicator/sockets/rendezvous.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "executor/communicator/exchange/transport.hpp"
#include "executor/error.hpp"

namespace zeroplan::executor::sockets {

namespace {

// First in what a rank says: the bytes "zplanTCP" and, changed with the frames, a version.
constexpr std::int64_t kProtocol = 0x7a706c616e544350;
constexpr std::int64_t kVersion = 1;

// Rank 0 may have started after the others, and is then the last to give up.
constexpr auto kPatienceWithRank0 = std::chrono::seconds(5);
constexpr auto kCheckEvery = std::chrono::milliseconds(50);

int backlog_of(const SocketOptions& options) {
  return static_cast<int>(std::max<std::int64_t>(128, options.ranks));
}

double seconds(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

// Connections that were accepted and have not yet said who they are: ranks, or whoever else finds the port.
class Newcomers {
 public:
  explicit Newcomers(const Socket& listener) : listener_(listener) {}

  // Hands each that has introduced itself to `introduce`; waits for one until the deadline.
  void serve(Clock::time_point deadline, const std::function<void(Frame, FrameStream)>& introduce) {
    std::vector<pollfd> descriptors{ready_when(listener_.get(), true, false)};
    for (const FrameStream& stream : streams_) {
      descriptors.push_back(ready_when(stream.socket().get(), true, false));
    }
    if (!poll_until(descriptors, deadline)) return;
    while (Socket socket = accept_one(listener_)) streams_.emplace_back(std::move(socket));
    for (FrameStream& stream : streams_) {
      if (auto frame = stream.receive()) introduce(std::move(*frame), std::move(stream));
    }
    std::erase_if(streams_, [](const FrameStream& stream) { return !stream.open(); });
  }

 private:
  const Socket& listener_;
  std::vector<FrameStream> streams_;
};

// Rank 0's side: who came, and what is wrong with what they say.
class Table {
 public:
  explicit Table(const SocketOptions& options)
      : options_(options),
        streams_(static_cast<std::size_t>(options.ranks)),
        addresses_(static_cast<std::size_t>(options.ranks)) {}

  bool complete() const { return missing().empty(); }

  std::vector<std::int64_t> missing() const {
    std::vector<std::int64_t> missing;
    for (std::size_t r = 1; r < streams_.size(); ++r) {
      if (!streams_[r].open()) missing.push_back(static_cast<std::int64_t>(r));
    }
    return missing;
  }

  void introduce(Frame hello, FrameStream stream) {
    if (hello.kind() != FrameKind::hello) return;
    std::int64_t version = 0, rank = 0, ranks = 0;
    Address address;
    try {
      if (hello.number() != kProtocol) return;
      version = hello.number();
      rank = hello.number();
      ranks = hello.number();
      address.host = hello.text();
      address.port = static_cast<int>(hello.number());
    } catch (const CommunicationError&) {
      return;  // a stray: ranks of another version are told apart by the numbers before
    }
    std::string problem;
    if (version != kVersion) {
      problem =
          fmt::format("rank {} has version {} of the protocol, rank 0 has {}: run one version of zeroplan",
                      rank, version, kVersion);
    } else if (ranks != options_.ranks) {
      problem = fmt::format("rank {} was started as one of {} ranks, rank 0 as one of {}", rank, ranks,
                            options_.ranks);
    } else if (rank < 1 || rank >= ranks) {
      problem = fmt::format("a process says it is rank {} of {}", rank, ranks);
    } else if (streams_[static_cast<std::size_t>(rank)].open()) {
      problem = fmt::format("two processes say they are rank {}", rank);
    }
    if (!problem.empty()) {
      stream.send(Frame(FrameKind::refused).put(problem));
      refuse(problem);
    }
    streams_[static_cast<std::size_t>(rank)] = std::move(stream);
    addresses_[static_cast<std::size_t>(rank)] = address;
  }

  [[noreturn]] void refuse(const std::string& problem) {
    for (FrameStream& stream : streams_) stream.send(Frame(FrameKind::refused).put(problem));
    throw CommunicationError(problem);
  }

  Rendezvous close(Socket listener) {
    std::random_device random;
    const std::int64_t token = static_cast<std::int64_t>(random()) << 32 | random();
    addresses_[0].port = port_of(listener);
    Frame frame(FrameKind::table);
    frame.put(token);
    for (const Address& address : addresses_) frame.put(address.host).put(address.port);
    for (FrameStream& stream : streams_) stream.send(frame);
    return {.control = std::move(streams_),
            .addresses = std::move(addresses_),
            .token = token,
            .listener = std::move(listener)};
  }

 private:
  const SocketOptions& options_;
  std::vector<FrameStream> streams_;  // by rank; closed where it has not come
  std::vector<Address> addresses_;
};

Rendezvous meet_as_rank_0(const SocketOptions& options) {
  const Address master{.host = options.master_address, .port = options.master_port};
  const auto deadline = Clock::now() + options.timeout;
  // A name of this host may mean its loopback here and its network elsewhere.
  const std::string host = is_loopback(master.host) ? master.host : "";
  const Socket listener = listen_at({.host = host, .port = master.port}, backlog_of(options));
  Newcomers newcomers(listener);
  Table table(options);
  while (!table.complete()) {
    newcomers.serve(deadline, [&](Frame frame, FrameStream stream) {
      table.introduce(std::move(frame), std::move(stream));
    });
    if (table.complete() || Clock::now() < deadline) continue;
    table.refuse(fmt::format("{} did not come to {} within {} s", ranks_text(table.missing()), master.text(),
                             seconds(options.timeout)));
  }
  return table.close(listen_at({.host = host, .port = 0}, backlog_of(options)));
}

Rendezvous meet_rank_0(const SocketOptions& options) {
  const Address master{.host = options.master_address, .port = options.master_port};
  const auto deadline = Clock::now() + options.timeout;
  FrameStream stream(
      connect_to(master, deadline, true, fmt::format("rank {} could not reach rank 0", options.rank)));
  // The way to the master is, for want of better knowledge, the way to all; on its own host it may be the
  // loopback, which the others then replace by the master's address.
  const bool loopback = is_loopback(master.host);
  const std::string own_host = local_host(stream.socket());
  const std::string master_host = peer_host(stream.socket());
  Socket listener = listen_at({.host = loopback ? own_host : "", .port = 0}, backlog_of(options));
  stream.send(Frame(FrameKind::hello)
                  .put(kProtocol)
                  .put(kVersion)
                  .put(options.rank)
                  .put(options.ranks)
                  .put(own_host)
                  .put(port_of(listener)));
  std::optional<Frame> answer;
  while (stream.open() && !(answer = stream.receive())) {
    std::vector<pollfd> descriptors{ready_when(stream.socket().get(), true, false)};
    if (!poll_until(descriptors, deadline + kPatienceWithRank0)) break;
  }
  if (answer && answer->kind() == FrameKind::refused) throw CommunicationError(answer->text());
  if (!answer || answer->kind() != FrameKind::table) {
    throw CommunicationError(fmt::format("rank {} met no rank 0 at {}: {}", options.rank, master.text(),
                                         stream.open() ? "it did not answer" : "it closed the connection"));
  }
  Rendezvous result;
  result.token = answer->number();
  result.listener = std::move(listener);
  for (std::int64_t r = 0; r < options.ranks; ++r) {
    Address address{.host = answer->text(), .port = 0};
    address.port = static_cast<int>(answer->number());
    if (address.host.empty() || is_loopback(address.host)) address.host = master_host;
    result.addresses.push_back(address);
  }
  result.control.push_back(std::move(stream));
  return result;
}

}  // namespace

Rendezvous meet_ranks(const SocketOptions& options) {
  return options.rank == 0 ? meet_as_rank_0(options) : meet_rank_0(options);
}

std::vector<Socket> connect_ranks(const SocketOptions& options, const Rendezvous& rendezvous,
                                  const std::function<void()>& check) {
  const auto deadline = Clock::now() + options.timeout;
  std::vector<Socket> connections(static_cast<std::size_t>(options.ranks));
  for (std::int64_t r = 0; r < options.rank; ++r) {
    check();
    // Who is in the table listens: the system accepts for a rank that is busy.
    FrameStream stream(connect_to(rendezvous.addresses[static_cast<std::size_t>(r)], deadline, false,
                                  fmt::format("could not reach rank {}", r)));
    stream.send(Frame(FrameKind::peer).put(kProtocol).put(rendezvous.token).put(options.rank));
    connections[static_cast<std::size_t>(r)] = std::move(stream).take_socket();
  }
  Newcomers newcomers(rendezvous.listener);
  std::int64_t to_come = options.ranks - 1 - options.rank;
  while (to_come > 0) {
    check();
    newcomers.serve(Clock::now() + kCheckEvery, [&](Frame peer, FrameStream stream) {
      if (peer.kind() != FrameKind::peer || peer.body().size() != 3 * sizeof(std::int64_t)) return;
      if (peer.number() != kProtocol || peer.number() != rendezvous.token) return;
      const std::int64_t rank = peer.number();
      if (rank <= options.rank || rank >= options.ranks) return;
      connections[static_cast<std::size_t>(rank)] = std::move(stream).take_socket();
      --to_come;
    });
    if (to_come == 0 || Clock::now() < deadline) continue;
    std::vector<std::int64_t> missing;
    for (std::int64_t r = options.rank + 1; r < options.ranks; ++r) {
      if (!connections[static_cast<std::size_t>(r)]) missing.push_back(r);
    }
    throw CommunicationError(
        fmt::format("{} did not connect within {} s", ranks_text(missing), seconds(options.timeout)));
  }
  return connections;
}

}  // namespace zeroplan::executor::sockets
