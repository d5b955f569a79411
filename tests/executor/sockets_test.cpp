#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/support/command.hpp"

using namespace std::chrono_literals;
using zeroplan::test::read_file;
using zeroplan::test::TemporaryFolder;

namespace {

constexpr int kExitBadInput = 2;
constexpr int kExitRunFailed = 4;
constexpr int kDidNotEnd = -1;

// A TCP socket of the loopback: bound to a port that was free, or connected to one.
int loopback_socket(int (*attach)(int, const sockaddr*, socklen_t), int& port) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  auto* any = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  while (attach(descriptor, any, length) != 0) std::this_thread::sleep_for(10ms);
  REQUIRE(::getsockname(descriptor, any, &length) == 0);
  if (port == 0) port = ntohs(address.sin_port);
  return descriptor;
}

int free_port() {
  int port = 0;
  ::close(loopback_socket(&::bind, port));
  return port;
}

// Processes of the program of ranks, each with its own environment and output.
class Processes {
 public:
  Processes(std::string what, std::chrono::milliseconds timeout)
      : what_(std::move(what)), timeout_(fmt::format("{}", timeout.count())), port_(free_port()) {}
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  ~Processes() {
    for (const pid_t process : processes_) {
      if (process > 0) ::kill(process, SIGKILL);
      if (process > 0) ::waitpid(process, nullptr, 0);
    }
  }

  int port() const { return port_; }

  // The number under which this object knows the process.
  std::size_t start(std::int64_t rank, std::int64_t ranks) {
    const std::size_t number = processes_.size();
    std::vector<std::string> environment{fmt::format("RANK={}", rank), fmt::format("WORLD_SIZE={}", ranks),
                                         "MASTER_ADDR=127.0.0.1", fmt::format("MASTER_PORT={}", port_)};
    std::vector<std::string> words{ZEROPLAN_SOCKET_RANKS, what_, timeout_};
    std::vector<char*> variables, arguments;
    for (std::string& variable : environment) variables.push_back(variable.data());
    for (std::string& word : words) arguments.push_back(word.data());
    variables.push_back(nullptr);
    arguments.push_back(nullptr);

    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_addopen(&files, 1, out(number).c_str(), O_WRONLY | O_CREAT, 0600);
    ::posix_spawn_file_actions_addopen(&files, 2, err(number).c_str(), O_WRONLY | O_CREAT, 0600);
    pid_t process = 0;
    const int result =
        ::posix_spawn(&process, ZEROPLAN_SOCKET_RANKS, &files, nullptr, arguments.data(), variables.data());
    ::posix_spawn_file_actions_destroy(&files);
    REQUIRE(result == 0);
    processes_.push_back(process);
    return number;
  }

  void start_all(std::int64_t ranks) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) start(rank, ranks);
  }

  void send_signal(std::size_t number, int signal) const { REQUIRE(::kill(processes_[number], signal) == 0); }

  void wait_for_output(std::string_view text) const {
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      while (read_file(out(i)).find(text) == std::string::npos) std::this_thread::sleep_for(5ms);
    }
  }

  // Its exit code; of one that a signal ended: 128 and the signal.
  int wait(std::size_t number, std::chrono::milliseconds limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    int status = 0;
    while (::waitpid(processes_[number], &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) return kDidNotEnd;
      std::this_thread::sleep_for(5ms);
    }
    processes_[number] = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::string output(std::size_t number) const { return read_file(out(number)); }
  std::string errors(std::size_t number) const { return read_file(err(number)); }

 private:
  std::string out(std::size_t number) const { return folder_.file(fmt::format("out{}", number)); }
  std::string err(std::size_t number) const { return folder_.file(fmt::format("err{}", number)); }

  std::string what_, timeout_;
  int port_;
  TemporaryFolder folder_;
  std::vector<pid_t> processes_;
};

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

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

TEST_CASE("sockets: ranks that disagree about the run end at its start") {
  Processes sizes("results", 10s);
  sizes.start(0, 2);
  sizes.start(1, 3);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(sizes.wait(i, 20s) == kExitRunFailed);
    CHECK(sizes.errors(i) == "rank 1 was started as one of 3 ranks, rank 0 as one of 2\n");
  }

  Processes twins("results", 10s);
  twins.start(0, 3);
  twins.start(1, 3);
  twins.start(1, 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(twins.wait(i, 20s) == kExitRunFailed);
    CHECK(twins.errors(i) == "two processes say they are rank 1\n");
  }
}

TEST_CASE("sockets: whoever else finds the port does not disturb the start") {
  Processes processes("sends", 20s);
  processes.start(0, 2);
  int port = processes.port();
  const int silent = loopback_socket(&::connect, port);
  const int talking = loopback_socket(&::connect, port);
  constexpr std::string_view kRequest = "GET / HTTP/1.1\r\n\r\n";
  CHECK(::send(talking, kRequest.data(), kRequest.size(), MSG_NOSIGNAL) == kRequest.size());
  processes.start(1, 2);
  CHECK(processes.wait(0, 20s) == 0);
  CHECK(processes.wait(1, 20s) == 0);
  ::close(silent);
  ::close(talking);
}
