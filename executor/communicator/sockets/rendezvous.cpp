#include "executor/communicator/sockets/rendezvous.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "executor/communicator/exchange/transport.hpp"
#include "executor/communicator/sockets/newcomers.hpp"
#include "executor/communicator/sockets/proof.hpp"
#include "executor/error.hpp"

namespace zeroplan::executor::sockets {

namespace {

// First in what a rank says: the bytes "zplanTCP" and, changed with the frames, a version.
constexpr std::int64_t kProtocol = 0x7a706c616e544350;
constexpr std::int64_t kVersion = 2;

// Rank 0 may have started after the others, and is then the last to give up.
constexpr auto kPatienceWithRank0 = std::chrono::seconds(5);
constexpr auto kCheckEvery = std::chrono::milliseconds(50);
constexpr auto kReconnectAfter = std::chrono::milliseconds(200);
constexpr std::size_t kRefusalsTold = 4;
constexpr std::int64_t kHighestPort = 65535;

int backlog_of(const SocketOptions& options) {
  return static_cast<int>(std::max<std::int64_t>(128, options.ranks));
}

double seconds(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

// What is signed: never the same for two purposes or two connections.
std::string signed_part(std::string_view purpose, const std::string& nonce, std::string_view body) {
  return fmt::format("{} {}{}", purpose, nonce, body);
}

std::string peer_part(const std::string& token, std::int64_t from, std::int64_t to) {
  return signed_part("peer", token, fmt::format("{} {}", from, to));
}

// What a rank says of itself.
struct Hello {
  std::int64_t version = 0, rank = 0, ranks = 0, port = 0;
  std::string nonce;
  RunIdentity identity;
  bool proven = false;  // that it knows the secret
};

Frame frame_of(const Hello& hello, const std::string& secret, const std::string& greeting_nonce) {
  Frame frame(FrameKind::hello);
  frame.put(kProtocol).put(hello.version).put(hello.rank).put(hello.ranks).put(hello.port).put(hello.nonce);
  frame.put(static_cast<std::int64_t>(hello.identity.size()));
  for (const IdentityField& field : hello.identity) frame.put(field.name).put(field.value);
  const std::string proof = proof_of(secret, signed_part("hello", greeting_nonce, frame.body()));
  return std::move(frame.put(std::string_view(proof)));
}

// Nothing where it is none of ours. Of another version only what comes first is read.
std::optional<Hello> read_hello(Frame frame, const std::string& secret, const std::string& greeting_nonce) {
  if (frame.kind() != FrameKind::hello) return std::nullopt;
  Hello hello;
  try {
    if (frame.number() != kProtocol) return std::nullopt;
    hello.version = frame.number();
    hello.rank = frame.number();
    if (hello.version != kVersion) return hello;
    hello.ranks = frame.number();
    hello.port = frame.number();
    hello.nonce = frame.text();
    for (std::int64_t left = frame.number(); left > 0; --left) {
      std::string name = frame.text();
      hello.identity.push_back({.name = std::move(name), .value = frame.text()});
    }
    const std::string body(frame.read_part());
    hello.proven = is_proof(frame.text(), secret, signed_part("hello", greeting_nonce, body));
  } catch (const CommunicationError&) {
    return std::nullopt;
  }
  if (hello.port < 1 || hello.port > kHighestPort) return std::nullopt;
  return hello;
}

// Rank 0's side: who came, and who was turned away.
class Table {
 public:
  explicit Table(const SocketOptions& options)
      : options_(options),
        streams_(static_cast<std::size_t>(options.ranks)),
        addresses_(static_cast<std::size_t>(options.ranks)) {}

  // A rank that came and has ended since is missing again, also where nobody has come in its place yet.
  bool complete() {
    for (FrameStream& stream : streams_) {
      if (stream.open()) (void)stream.receive();
    }
    return missing().empty();
  }

  std::vector<std::int64_t> missing() const {
    std::vector<std::int64_t> missing;
    for (std::size_t r = 1; r < streams_.size(); ++r) {
      if (!streams_[r].open()) missing.push_back(static_cast<std::int64_t>(r));
    }
    return missing;
  }

  void introduce(Frame frame, Newcomer newcomer) {
    const std::optional<Hello> hello = read_hello(std::move(frame), options_.secret, newcomer.nonce);
    if (!hello) return;
    std::string host;
    try {
      host = peer_host(newcomer.stream.socket());
    } catch (const CommunicationError&) {
      return;  // it has gone already
    }
    if (const std::string problem = problem_of(*hello); !problem.empty()) {
      newcomer.stream.send(Frame(FrameKind::refused).put(problem));
      return remember_refusal(fmt::format("turned away from {}: {}", host, problem));
    }
    const auto r = static_cast<std::size_t>(hello->rank);
    newcomer.stream.trust();
    streams_[r] = std::move(newcomer.stream);
    nonces_[hello->rank] = hello->nonce;
    // Not where it says that it is, but where it is.
    addresses_[r] = {.host = host, .port = static_cast<int>(hello->port)};
  }

  [[noreturn]] void give_up(std::string problem) {
    for (const std::string& refusal : refusals_) problem += "; " + refusal;
    for (FrameStream& stream : streams_) stream.send(Frame(FrameKind::refused).put(problem));
    throw CommunicationError(problem);
  }

  Rendezvous close(Socket listener) {
    const std::string token = fresh_bytes();
    addresses_[0].port = port_of(listener);
    for (std::int64_t rank = 1; rank < options_.ranks; ++rank) {
      Frame frame(FrameKind::table);
      frame.put(std::string_view(token));
      for (const Address& address : addresses_) frame.put(std::string_view(address.host)).put(address.port);
      const std::string proof = proof_of(options_.secret, signed_part("table", nonces_[rank], frame.body()));
      streams_[static_cast<std::size_t>(rank)].send(frame.put(std::string_view(proof)));
    }
    return {.control = std::move(streams_),
            .addresses = std::move(addresses_),
            .token = token,
            .listener = std::move(listener)};
  }

 private:
  // Empty where it is a rank of this run that has not come yet.
  std::string problem_of(const Hello& hello) {
    if (hello.version != kVersion) {
      return fmt::format("rank {} has version {} of the protocol, rank 0 has {}: run one version of zeroplan",
                         hello.rank, hello.version, kVersion);
    }
    if (!hello.proven) {
      return fmt::format(
          "a process that says it is rank {} does not know the secret of this job (ZEROPLAN_SECRET)",
          hello.rank);
    }
    if (hello.ranks != options_.ranks) {
      return fmt::format("rank {} was started as one of {} ranks, rank 0 as one of {}", hello.rank,
                         hello.ranks, options_.ranks);
    }
    if (hello.rank < 1 || hello.rank >= hello.ranks) {
      return fmt::format("a process says it is rank {} of {}", hello.rank, hello.ranks);
    }
    std::string difference = difference_text(hello.rank, hello.identity, options_.identity);
    if (!difference.empty()) return difference;
    FrameStream& earlier = streams_[static_cast<std::size_t>(hello.rank)];
    (void)earlier.receive();  // whether it has ended since
    if (earlier.open()) return fmt::format("two processes say they are rank {}", hello.rank);
    return {};
  }

  void remember_refusal(std::string refusal) {
    if (refusals_.size() == kRefusalsTold ||
        std::find(refusals_.begin(), refusals_.end(), refusal) != refusals_.end()) {
      return;
    }
    if (options_.refused) options_.refused(refusal);
    refusals_.push_back(std::move(refusal));
  }

  const SocketOptions& options_;
  std::vector<FrameStream> streams_;  // by rank; closed where it has not come
  std::vector<Address> addresses_;
  std::map<std::int64_t, std::string> nonces_;  // of the ranks that came
  std::vector<std::string> refusals_;           // each once, the first ones
};

Rendezvous meet_as_rank_0(const SocketOptions& options) {
  const Address master{.host = options.master_address, .port = options.master_port};
  const auto deadline = Clock::now() + options.timeout;
  const Socket listener = listen_at(master, backlog_of(options));
  Newcomers newcomers(listener, [](const std::string& nonce) {
    return std::move(Frame(FrameKind::greeting).put(kProtocol).put(kVersion).put(std::string_view(nonce)));
  });
  Table table(options);
  while (!table.complete()) {
    newcomers.serve(deadline, [&](Frame frame, Newcomer newcomer) {
      table.introduce(std::move(frame), std::move(newcomer));
    });
    if (table.complete() || Clock::now() < deadline) continue;
    std::string problem = fmt::format("{} did not come to {} within {} s", ranks_text(table.missing()),
                                      master.text(), seconds(options.timeout));
    const std::string here = local_host(listener);
    if (is_loopback(here) && !is_loopback(master.host)) {
      problem +=
          fmt::format(" (here, {} means {}, which only processes of this host can reach)", master.host, here);
    }
    table.give_up(std::move(problem));
  }
  return table.close(listen_at({.host = master.host, .port = 0}, backlog_of(options)));
}

std::optional<Frame> next_frame(FrameStream& stream, Clock::time_point deadline) {
  std::optional<Frame> frame;
  while (stream.open() && !(frame = stream.receive())) {
    std::vector<pollfd> descriptors{ready_when(stream.socket().get(), true, false)};
    if (!poll_until(descriptors, deadline)) break;
  }
  return frame;
}

// The nonce of a greeting; nothing where it is none.
std::optional<std::string> nonce_of(std::optional<Frame> greeting) {
  if (!greeting || greeting->kind() != FrameKind::greeting) return std::nullopt;
  try {
    if (greeting->number() != kProtocol) return std::nullopt;
    (void)greeting->number();  // the version: rank 0 says what is wrong with ours
    return greeting->text();
  } catch (const CommunicationError&) {
    return std::nullopt;
  }
}

Rendezvous read_table(const SocketOptions& options, Frame table, FrameStream stream,
                      const std::string& nonce) {
  Rendezvous result;
  result.token = table.text();
  for (std::int64_t r = 0; r < options.ranks; ++r) {
    Address address{.host = table.text(), .port = 0};
    address.port = static_cast<int>(table.number());
    // Rank 0 listens where it was reached.
    if (r == 0) address.host = peer_host(stream.socket());
    result.addresses.push_back(address);
  }
  const std::string body(table.read_part());
  if (!is_proof(table.text(), options.secret, signed_part("table", nonce, body))) {
    throw CommunicationError(
        fmt::format("what answered rank {} as rank 0 does not know the secret of this job (ZEROPLAN_SECRET)",
                    options.rank));
  }
  result.control.push_back(std::move(stream));
  return result;
}

Rendezvous meet_rank_0(const SocketOptions& options) {
  const Address master{.host = options.master_address, .port = options.master_port};
  const auto deadline = Clock::now() + options.timeout;
  const auto met_none = [&](std::string_view why) {
    return CommunicationError(
        fmt::format("rank {} met no rank 0 at {}: {}", options.rank, master.text(), why));
  };
  bool greeted = false;
  while (true) {
    // Who was greeted and is then left alone made room for others, or rank 0 has ended.
    FrameStream stream(connect_to(master, deadline, !greeted,
                                  fmt::format("rank {} could not reach rank 0{}", options.rank,
                                              greeted ? ", which had greeted it," : "")));
    stream.trust();
    if (const auto greeting_nonce = nonce_of(next_frame(stream, deadline))) {
      greeted = true;
      const std::string own_host = local_host(stream.socket());
      Socket listener = listen_at({.host = own_host, .port = 0}, backlog_of(options));
      const Hello hello{.version = kVersion,
                        .rank = options.rank,
                        .ranks = options.ranks,
                        .port = port_of(listener),
                        .nonce = fresh_bytes(),
                        .identity = options.identity};
      stream.send(frame_of(hello, options.secret, *greeting_nonce));
      std::optional<Frame> answer = next_frame(stream, deadline + kPatienceWithRank0);
      if (answer && answer->kind() == FrameKind::refused) {
        throw CommunicationError(answer->text());
      }
      if (answer && answer->kind() == FrameKind::table) {
        Rendezvous result = read_table(options, std::move(*answer), std::move(stream), hello.nonce);
        result.listener = std::move(listener);
        return result;
      }
      if (stream.open()) throw met_none("it greeted, and did not answer then");
    } else if (stream.open()) {
      throw met_none(fmt::format("what listens there did not greet within {} s", seconds(options.timeout)));
    }
    if (Clock::now() >= deadline) throw met_none("what listens there closes the connection");
    std::this_thread::sleep_for(kReconnectAfter);
  }
}

}  // namespace

Rendezvous meet_ranks(const SocketOptions& options) {
  return options.rank == 0 ? meet_as_rank_0(options) : meet_rank_0(options);
}

std::vector<Socket> connect_ranks(const SocketOptions& options, Rendezvous& rendezvous,
                                  const std::function<void()>& check) {
  const auto deadline = Clock::now() + options.timeout;
  std::vector<Socket> connections(static_cast<std::size_t>(options.ranks));
  for (std::int64_t r = 0; r < options.rank; ++r) {
    check();
    // Who is in the table listens: the system accepts for a rank that is busy.
    FrameStream stream(connect_to(rendezvous.addresses[static_cast<std::size_t>(r)], deadline, false,
                                  fmt::format("could not reach rank {}", r)));
    const std::string proof = proof_of(options.secret, peer_part(rendezvous.token, options.rank, r));
    stream.send(Frame(FrameKind::peer).put(options.rank).put(std::string_view(proof)));
    connections[static_cast<std::size_t>(r)] = std::move(stream).take_socket();
  }
  const Socket listener = std::move(rendezvous.listener);
  Newcomers newcomers(listener);
  std::int64_t to_come = options.ranks - 1 - options.rank;
  while (to_come > 0) {
    check();
    newcomers.serve(Clock::now() + kCheckEvery, [&](Frame peer, Newcomer newcomer) {
      if (peer.kind() != FrameKind::peer) return;
      std::int64_t rank = 0;
      try {
        rank = peer.number();
        if (!is_proof(peer.text(), options.secret, peer_part(rendezvous.token, rank, options.rank))) return;
      } catch (const CommunicationError&) {
        return;
      }
      if (rank <= options.rank || rank >= options.ranks) return;
      Socket& place = connections[static_cast<std::size_t>(rank)];
      if (place) return;
      place = std::move(newcomer.stream).take_socket();
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
