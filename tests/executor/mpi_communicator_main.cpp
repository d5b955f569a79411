#include <chrono>
#include <string>

#include "executor/communicator/mpi/mpi_communicator.hpp"
#include "tests/executor/rank_scenarios.hpp"

// A rank to be started by mpirun, with the scenario as its argument.
int main(int argc, char** argv) {
  using namespace std::chrono_literals;
  using namespace zeroplan::executor;
  const std::string what = argc > 1 ? argv[1] : "results";
  const MpiOptions options{.timeout = what == "timeout" || what == "sender" ? 200ms : 60'000ms};
  run_mpi_rank(&argc, &argv, options, [&](Communicator& world) { test::run_scenario(world, what); });
  return 0;
}
