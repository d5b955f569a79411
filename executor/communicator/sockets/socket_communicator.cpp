#include "executor/communicator/sockets/socket_communicator.hpp"

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "executor/communicator/exchange/exchange_communicator.hpp"
#include "executor/communicator/sockets/rendezvous.hpp"
#include "executor/communicator/sockets/socket_transport.hpp"
#include "executor/error.hpp"

namespace zeroplan::executor {

namespace {

std::unique_ptr<Communicator> connect_world(const SocketOptions& options, sockets::Rendezvous& rendezvous,
                                            sockets::Control& control) {
  std::vector<sockets::Socket> connections = sockets::connect_ranks(options, rendezvous, [&] {
    if (control.stopped()) throw CommunicationError("the run was stopped");
  });
  std::vector<sockets::Channel> channels;
  channels.reserve(connections.size());
  for (sockets::Socket& connection : connections) channels.emplace_back(std::move(connection));
  const auto session = std::make_shared<sockets::Session>(
      sockets::Session{.options = options, .control = control, .channels = std::move(channels)});
  std::vector<std::int64_t> members(static_cast<std::size_t>(options.ranks));
  std::iota(members.begin(), members.end(), 0);
  return make_exchange_communicator(
      std::make_unique<sockets::SocketTransport>(session, 0, std::move(members), options.rank));
}

// The user's mistake is told as it is; a rank's own with the rank.
sockets::FailureReport report_of(const Failure& failure, std::int64_t rank, const sockets::Control& control) {
  if (failure.kind == Failure::Kind::configuration) {
    return sockets::report_of(failure.kind, failure.text, {});
  }
  std::vector<std::int64_t> about;
  if (!control.activity().empty()) about.push_back(rank);
  return sockets::report_of(failure.kind, fmt::format("rank {}: {}", rank, failure.text), std::move(about));
}

}  // namespace

void run_socket_rank(const SocketOptions& options, const std::function<void(Communicator&)>& rank_main) {
  if (options.rank < 0 || options.rank >= options.ranks) {
    throw std::logic_error(fmt::format("rank {} of {}", options.rank, options.ranks));
  }
  if (options.ranks > 1 && options.secret.empty() && !sockets::is_loopback(options.master_address)) {
    throw std::logic_error("ranks without a secret at an address that others can reach");
  }
  sockets::Rendezvous rendezvous;
  if (options.ranks > 1) rendezvous = sockets::meet_ranks(options);
  sockets::Control control(options, std::move(rendezvous.control));
  std::unique_ptr<Communicator> world;  // until the verdict: the end of its connections is the end of a rank
  std::optional<Failure> verdict;
  try {
    world = connect_world(options, rendezvous, control);
    rank_main(*world);
    verdict = control.finish();
  } catch (...) {
    const Failure failure = failure_of(std::current_exception());
    verdict = control.stop(report_of(failure, options.rank, control));
    const bool own_mistake = failure.kind == Failure::Kind::configuration;
    if (own_mistake && verdict->kind == failure.kind && verdict->text == failure.text) throw;
  }
  if (verdict) throw_failure(*verdict);
}

}  // namespace zeroplan::executor
