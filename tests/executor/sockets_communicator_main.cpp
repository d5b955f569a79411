#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "executor/communicator/sockets/socket_communicator.hpp"
#include "executor/launch.hpp"
#include "planner/error.hpp"
#include "tests/executor/rank_scenarios.hpp"

namespace {

constexpr int kExitBadInput = 2;
constexpr int kExitRunFailed = 4;

int end(const std::string& message, int exit_code) {
  fmt::print(stderr, "{}\n", message);
  return exit_code;
}

}  // namespace

// A rank to be started with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (and SEED, which is what it runs) in
// its environment, with the
// scenario and a timeout in milliseconds as its arguments.
int main(int argc, char** argv) {
  using namespace zeroplan;
  using namespace zeroplan::executor;
  try {
    const std::string what = argc > 1 ? argv[1] : "results";
    const Launch launch = detect_launch(environment_variable, false);
    const SocketOptions options{
        .rank = launch.rank,
        .ranks = launch.ranks,
        .master_address = launch.master_address,
        .master_port = launch.master_port,
        .timeout = std::chrono::milliseconds(argc > 2 ? std::stoi(argv[2]) : 60'000),
        .identity = {{"seed", environment_variable("SEED").value_or("1")}},
        .secret = launch.secret,
        .stalled = [](const std::string& report) { std::_Exit(end(report, kExitRunFailed)); }};
    run_socket_rank(options, [&](Communicator& world) { test::run_scenario(world, what); });
    return 0;
  } catch (const ConfigurationError& error) {
    return end(error.what(), kExitBadInput);
  } catch (const std::exception& error) {
    return end(error.what(), kExitRunFailed);
  }
}
