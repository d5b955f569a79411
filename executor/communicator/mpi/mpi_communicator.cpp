#include "executor/communicator/mpi/mpi_communicator.hpp"

#include <fmt/format.h>

#include <exception>
#include <numeric>
#include <utility>
#include <vector>

#include "executor/communicator/exchange/exchange_communicator.hpp"
#include "executor/communicator/mpi/mpi_transport.hpp"
#include "executor/error.hpp"
#include "planner/error.hpp"

namespace zeroplan::executor {

namespace {

std::unique_ptr<Communicator> world_of(const std::shared_ptr<mpi::Session>& session, int size) {
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  MPI_Comm handle = MPI_COMM_NULL;
  mpi::check(MPI_Comm_dup(MPI_COMM_WORLD, &handle), "MPI_Comm_dup");
  return make_exchange_communicator(std::make_unique<mpi::MpiTransport>(session, handle, std::move(members)));
}

}  // namespace

void run_mpi_rank(int* argc, char*** argv, const MpiOptions& options,
                  const std::function<void(Communicator&)>& rank_main) {
  int provided = 0;
  mpi::check(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_SERIALIZED) mpi::end_all("this MPI cannot be called from changing threads");
  int size = 0, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (options.ranks != 0 && options.ranks != size) {
    mpi::end_all(fmt::format("MPI sees {} ranks, but the launcher started {}: this MPI does not know the "
                             "launcher; use the mpirun that belongs to it, or srun --mpi=pmix",
                             size, options.ranks),
                 mpi::kExitBadInput);
  }
  {
    const auto session = std::make_shared<mpi::Session>(options);
    session->runs_beside = provided == MPI_THREAD_MULTIPLE;
    const auto world = world_of(session, size);
    // Caught before the handles above are freed: MPI frees them together with the other ranks, which may be
    // waiting.
    try {
      rank_main(*world);
    } catch (const ConfigurationError& error) {
      mpi::end_all(error.what(), mpi::kExitBadInput);
    } catch (const NotPossible& error) {
      mpi::end_all(fmt::format("rank {}: {}", rank, error.what()), mpi::kExitNotPossible);
    } catch (const std::exception& error) {
      mpi::end_all(fmt::format("rank {}: {}", rank, error.what()));
    } catch (...) {
      mpi::end_all(fmt::format("rank {}: an exception that is no std::exception", rank));
    }
  }
  MPI_Finalize();
}

}  // namespace zeroplan::executor
