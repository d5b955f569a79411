#include "executor/run/ranks.hpp"

#include <algorithm>
#include <thread>

#include "executor/communicator/sockets/socket_communicator.hpp"
#include "executor/communicator/threads/thread_communicator.hpp"
#include "executor/modules.hpp"

namespace zeroplan::executor {

void run_as_launched(const Launch& launch, const RankOptions& options,
                     const std::function<void(Communicator&)>& rank_main) {
  switch (launch.kind) {
    case Launch::Kind::threads: {
      ThreadOptions threads{.timeout = options.timeout};
      threads.stalled = options.stalled;
      return run_ranks(options.ranks, threads, rank_main);
    }
    case Launch::Kind::mpi:
      return run_mpi_module(options.timeout, launch.ranks, [&](Communicator& world) {
        require_same_identity(world, options.identity);
        rank_main(world);
      });
    case Launch::Kind::sockets: {
      SocketOptions sockets;
      sockets.rank = launch.rank;
      sockets.ranks = launch.ranks;
      sockets.master_address = launch.master_address;
      sockets.master_port = launch.master_port;
      sockets.timeout = options.timeout;
      sockets.identity = options.identity;
      sockets.secret = launch.secret;
      sockets.refused = options.refused;
      sockets.stalled = options.stalled;
      return run_socket_rank(sockets, rank_main);
    }
  }
}

std::int64_t ranks_here(const Launch& launch, std::int64_t ranks) {
  if (launch.kind == Launch::Kind::threads) return ranks;
  return launch.local_ranks > 0 ? launch.local_ranks : launch.ranks;
}

int threads_of_one_of(std::int64_t ranks) {
  const auto processors = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  return static_cast<int>(std::max<std::int64_t>(1, processors / ranks));
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

}  // namespace zeroplan::executor
