#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/executor/socket_processes.hpp"

using namespace zeroplan::executor::test;

TEST_CASE("sockets: collectives have the bits of ranks as threads") {
  for (const int ranks : {1, 3}) {
    CAPTURE(ranks);
    Processes processes("results", 60s);
    processes.start_all(ranks);
    for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) {
      CHECK(processes.wait(r, 120s) == 0);
      CHECK(processes.errors(r) == "");
    }
    CHECK(processes.output(0) == "results: ok\n");
  }
}

TEST_CASE("sockets: a rank that fails ends all, with one text") {
  struct Case {
    std::string how, text;
    std::chrono::milliseconds timeout;
    int exit_code = kExitRunFailed;
    int last_exit_code = kExitRunFailed;
  };
  const std::vector<Case> cases{
      {"timeout", "rank 2 did not come within 1 s to call 1, all_reduce (sum) of 12 fp32, where rank ", 1s},
      {"mismatch", "call 1, reduce_scatter of 12 fp32", 30s},
      {"mismatch", "call 1, all_reduce (sum) of 12 fp32", 30s},
      {"lengths", "rank 2 is in call 1, all_reduce (sum) of 1 fp32", 30s},
      {"abort", "rank 2: no more memory; rank 2 was at: matmul 2\n", 30s},
      {"exception", "rank 2: broken; rank 2 was at: matmul 2\n", 30s},
      {"configuration", "data.txt: no such file\n", 30s, kExitBadInput, kExitBadInput},
      {"exit", "rank 2 ended without a word; rank 2 was at: matmul 2\n", 30s, kExitRunFailed, 0},
  };
  for (const Case& c : cases) {
    CAPTURE(c.how);
    Processes processes(c.how, c.timeout);
    processes.start_all(3);
    CHECK(processes.wait(0, 20s) == c.exit_code);
    CHECK(processes.wait(1, 20s) == c.exit_code);
    CHECK(processes.wait(2, 20s) == c.last_exit_code);
    const std::string said = processes.errors(0);
    CHECK(contains(said, c.text));
    if (c.how != "configuration") CHECK(contains(said, "; rank 2 was at: matmul 2"));
    CHECK(processes.errors(1) == said);
    if (c.last_exit_code != 0) CHECK(contains(processes.errors(2), said.substr(0, said.size() - 1)));
  }
}

TEST_CASE("sockets: a partner that does not send ends all, with the message and what it was doing") {
  Processes processes("sender", 1s);
  processes.start_all(2);
  CHECK(processes.wait(0, 20s) == kExitRunFailed);
  CHECK(contains(processes.errors(0),
                 "rank 1 did not come within 1 s to message 0 from rank 1 of 12 fp32, where rank 0 waited; "
                 "rank 1 was at: matmul 1"));
}

TEST_CASE("sockets: the end of any process ends all, also that of rank 0") {
  for (const std::size_t victim : {std::size_t{0}, std::size_t{1}}) {
    CAPTURE(victim);
    Processes processes("timeout", 4s);
    processes.start_all(4);
    processes.wait_for_output("before call 1\n");
    processes.send_signal(victim, SIGKILL);
    for (std::size_t r = 0; r < 4; ++r) {
      CHECK(processes.wait(r, 20s) == (r == victim ? 128 + SIGKILL : kExitRunFailed));
      if (r != victim)
        CHECK(contains(processes.errors(r), fmt::format("rank {} ended without a word", victim)));
    }
  }
}

TEST_CASE("sockets: a process that stands still is left behind, and ends when it goes on") {
  Processes processes("timeout", 1s);
  processes.start_all(3);
  processes.wait_for_output("before call 1\n");
  std::this_thread::sleep_for(200ms);
  processes.send_signal(2, SIGSTOP);
  CHECK(processes.wait(0, 20s) == kExitRunFailed);
  CHECK(processes.wait(1, 20s) == kExitRunFailed);
  CHECK(contains(processes.errors(1), "rank 2 was at: matmul 2"));
  processes.send_signal(2, SIGCONT);
  CHECK(processes.wait(2, 20s) == kExitRunFailed);
}

TEST_CASE("sockets: ranks that do not start are named to those that did") {
  Processes processes("results", 1s);
  processes.start(0, 5);
  processes.start(2, 5);
  processes.start(4, 5);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(processes.wait(i, 20s) == kExitRunFailed);
    CHECK(processes.errors(i) ==
          fmt::format("ranks 1, 3 did not come to 127.0.0.1:{} within 1 s\n", processes.port()));
  }

  Processes headless("results", 1s);
  headless.start(1, 2);
  CHECK(headless.wait(0, 20s) == kExitRunFailed);
  CHECK(contains(headless.errors(0),
                 fmt::format("rank 1 could not reach rank 0 at 127.0.0.1:{} within 1.", headless.port())));
  CHECK(contains(headless.errors(0), "Connection refused"));
}
