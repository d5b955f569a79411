#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/resource.h>
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

// Ranks as processes that talk by sockets, and whoever else connects to their ports.
namespace zeroplan::executor::test {

using namespace std::chrono_literals;
using zeroplan::test::read_file;
using zeroplan::test::TemporaryFolder;

inline constexpr int kExitBadInput = 2;
inline constexpr int kExitRunFailed = 4;
inline constexpr int kDidNotEnd = -1;

// A TCP socket of the loopback: bound to a port that was free, or connected to one.
inline int loopback_socket(int (*attach)(int, const sockaddr*, socklen_t), int& port) {
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

inline int free_port() {
  int port = 0;
  ::close(loopback_socket(&::bind, port));
  return port;
}

// Processes of the program of ranks, each with its own environment and output.
class Processes {
 public:
  // `port`: of the master; 0: one that is free.
  Processes(std::string what, std::chrono::milliseconds timeout, int port = 0)
      : what_(std::move(what)),
        timeout_(fmt::format("{}", timeout.count())),
        port_(port == 0 ? free_port() : port) {}
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  ~Processes() {
    for (const pid_t process : processes_) {
      if (process > 0) ::kill(process, SIGKILL);
      if (process > 0) ::waitpid(process, nullptr, 0);
    }
  }

  int port() const { return port_; }

  // The number under which this object knows the process. `more`: variables, "NAME=value".
  std::size_t start(std::int64_t rank, std::int64_t ranks, const std::vector<std::string>& more = {}) {
    const std::size_t number = processes_.size();
    std::vector<std::string> environment{fmt::format("RANK={}", rank), fmt::format("WORLD_SIZE={}", ranks),
                                         "MASTER_ADDR=127.0.0.1", fmt::format("MASTER_PORT={}", port_)};
    environment.insert(environment.end(), more.begin(), more.end());
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
    while (::wait4(processes_[number], &status, WNOHANG, &usage_) == 0) {
      if (std::chrono::steady_clock::now() > deadline) return kDidNotEnd;
      std::this_thread::sleep_for(5ms);
    }
    processes_[number] = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  // Of the process that was waited for last.
  double processor_seconds() const {
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(usage_.ru_utime) + seconds(usage_.ru_stime);
  }

  pid_t process(std::size_t number) const { return processes_[number]; }
  std::string output(std::size_t number) const { return read_file(out(number)); }
  std::string errors(std::size_t number) const { return read_file(err(number)); }

 private:
  std::string out(std::size_t number) const { return folder_.file(fmt::format("out{}", number)); }
  std::string err(std::size_t number) const { return folder_.file(fmt::format("err{}", number)); }

  std::string what_, timeout_;
  int port_;
  TemporaryFolder folder_;
  std::vector<pid_t> processes_;
  rusage usage_{};
};

inline bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace zeroplan::executor::test
