#include "cli/ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "cli/command.hpp"
#include "executor/communicator/sockets/socket_communicator.hpp"
#include "executor/communicator/threads/thread_communicator.hpp"
#include "executor/modules.hpp"

namespace zeroplan::cli {
namespace {

using executor::Launch;

// Ranks that are threads cannot be stopped when one of them hangs; only the process can.
[[noreturn]] void end_stalled(const std::string& report) {
  fmt::print(stderr, "zeroplan: error: {}\n", report);
  std::_Exit(kRunFailed);
}

}  // namespace

int threads_of_one_of(std::int64_t ranks) {
  const auto processors = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  return static_cast<int>(std::max<std::int64_t>(1, processors / ranks));
}

void run_as_launched(const Launch& launch, std::int64_t ranks, std::chrono::milliseconds timeout,
                     const executor::RunIdentity& identity, std::ostream* progress,
                     const std::function<void(executor::Communicator&)>& rank_main) {
  switch (launch.kind) {
    case Launch::Kind::threads: {
      executor::ThreadOptions options{.timeout = timeout};
      options.stalled = end_stalled;
      return executor::run_ranks(ranks, options, rank_main);
    }
    case Launch::Kind::mpi:
      return executor::run_mpi_module(timeout, launch.ranks, [&](executor::Communicator& world) {
        executor::require_same_identity(world, identity);
        rank_main(world);
      });
    case Launch::Kind::sockets: {
      executor::SocketOptions options;
      options.rank = launch.rank;
      options.ranks = launch.ranks;
      options.master_address = launch.master_address;
      options.master_port = launch.master_port;
      options.timeout = timeout;
      options.identity = identity;
      options.secret = launch.secret;
      options.refused = [progress](const std::string& why) {
        if (progress != nullptr) *progress << "zeroplan: " << why << std::endl;
      };
      options.stalled = end_stalled;
      return executor::run_socket_rank(options, rank_main);
    }
  }
}

Answer end_of_rank(const Request& request, const Launch& launch, const std::string& reason, int exit_code) {
  if (request.progress != nullptr) {
    const bool alone = launch.kind == Launch::Kind::threads;
    *request.progress << fmt::format("zeroplan: {}{}", alone ? "" : fmt::format("rank {}: ", launch.rank),
                                     reason)
                      << std::endl;
  }
  return Answer{{}, exit_code, true};
}

std::string text_of(Launch::Kind kind) {
  switch (kind) {
    case Launch::Kind::threads:
      return "threads";
    case Launch::Kind::mpi:
      return "processes of MPI";
    case Launch::Kind::sockets:
      break;
  }
  return "processes with sockets";
}

}  // namespace zeroplan::cli
