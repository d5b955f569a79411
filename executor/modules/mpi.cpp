#include "executor/communicator/mpi/mpi_communicator.hpp"
#include "executor/module_interface.hpp"

extern "C" void zeroplan_run_mpi(std::chrono::milliseconds timeout, std::int64_t ranks,
                                 const std::function<void(zeroplan::executor::Communicator&)>& rank_main) {
  zeroplan::executor::run_mpi_rank(nullptr, nullptr, {.timeout = timeout, .ranks = ranks}, rank_main);
}
