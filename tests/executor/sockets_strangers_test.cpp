#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <sstream>

#include "executor/communicator/sockets/frame.hpp"
#include "executor/communicator/sockets/proof.hpp"
#include "tests/executor/socket_processes.hpp"

// Whoever connects to the port of a run and is no rank of it is turned away, and the run goes on.

using namespace zeroplan::executor::test;
using zeroplan::executor::sockets::Frame;
using zeroplan::executor::sockets::FrameKind;

namespace {

constexpr std::int64_t kProtocol = 0x7a706c616e544350;
constexpr std::int64_t kVersion = 2;

// A connection to a port of the loopback, which stays until its end.
class Stranger {
 public:
  explicit Stranger(int port) : descriptor_(loopback_socket(&::connect, port)) {}
  Stranger(Stranger&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  Stranger& operator=(Stranger&&) = delete;
  ~Stranger() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  // The run may have hung up: what is not taken is not sent.
  Stranger& say(std::string_view bytes) {
    (void)::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return *this;
  }
  Stranger& say_prefix(std::uint32_t bytes, std::uint32_t kind) {
    std::array<char, 8> prefix{};
    std::memcpy(prefix.data(), &bytes, 4);
    std::memcpy(prefix.data() + 4, &kind, 4);
    return say({prefix.data(), prefix.size()});
  }
  Stranger& say(const Frame& frame) {
    say_prefix(static_cast<std::uint32_t>(frame.body().size()), static_cast<std::uint32_t>(frame.kind()));
    return say(frame.body());
  }

  Frame hear() const {
    const auto bytes = [&](std::size_t count) {
      std::string all(count, '\0');
      const ssize_t got = ::recv(descriptor_, all.data(), count, MSG_WAITALL);
      all.resize(static_cast<std::size_t>(std::max<ssize_t>(0, got)));
      return all;
    };
    const std::string prefix = bytes(8);
    std::uint32_t size = 0, kind = 0;
    REQUIRE(prefix.size() == 8);
    std::memcpy(&size, prefix.data(), 4);
    std::memcpy(&kind, prefix.data() + 4, 4);
    return {static_cast<FrameKind>(kind), bytes(size)};
  }

  std::string nonce() const {
    Frame greeting = hear();
    REQUIRE(greeting.kind() == FrameKind::greeting);
    CHECK(greeting.number() == kProtocol);
    CHECK(greeting.number() == kVersion);
    return greeting.text();
  }

 private:
  int descriptor_;
};

struct FalseHello {
  std::int64_t version = kVersion, rank = 1, ranks = 2;
  std::string seed = "1", secret{};
};

Frame frame_of(const FalseHello& hello, const std::string& nonce) {
  Frame frame(FrameKind::hello);
  frame.put(kProtocol).put(hello.version).put(hello.rank).put(hello.ranks).put(std::int64_t{1234});
  frame.put(std::string_view(std::string(32, 'n'))).put(std::int64_t{1});
  frame.put(std::string_view("seed")).put(std::string_view(hello.seed));
  const std::string proof =
      zeroplan::executor::sockets::proof_of(hello.secret, "hello " + nonce + frame.body());
  return std::move(frame.put(std::string_view(proof)));
}

// Rank 0 of two, strangers, and only then rank 1: both must end well.
void run_goes_on_after(const std::string& what, const std::function<void(int port)>& attack) {
  CAPTURE(what);
  Processes processes("sends", 20s);
  processes.start(0, 2);
  attack(processes.port());
  processes.start(1, 2);
  CHECK(processes.wait(0, 30s) == 0);
  CHECK(processes.wait(1, 30s) == 0);
  CHECK(processes.errors(1) == "");
}

// Numbers of the ports at which a process listens now.
std::set<int> listening_ports(pid_t process) {
  std::set<std::string> sockets;
  for (const auto& file : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", process))) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(file.path(), error).string();
    if (target.starts_with("socket:[")) sockets.insert(target.substr(8, target.size() - 9));
  }
  std::set<int> ports;
  for (const char* version : {"tcp", "tcp6"}) {
    std::ifstream table(fmt::format("/proc/{}/net/{}", process, version));
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
      // proc(5): number, local address, remote address, state, ..., the tenth is the inode.
      std::istringstream words(line);
      std::vector<std::string> fields;
      for (std::string word; words >> word;) fields.push_back(word);
      if (fields.size() < 10 || fields[3] != "0A" || !sockets.contains(fields[9])) continue;
      ports.insert(std::stoi(fields[1].substr(fields[1].find(':') + 1), nullptr, 16));
    }
  }
  return ports;
}

}  // namespace

TEST_CASE("sockets: what is no hello is turned away") {
  std::vector<Stranger> held;
  run_goes_on_after("random bytes", [&](int port) {
    std::mt19937 random(7);
    for (int i = 0; i < 30; ++i) {
      std::string bytes(200, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      held.emplace_back(port).say(bytes);
    }
  });
  run_goes_on_after("a request for a page", [&](int port) {
    held.emplace_back(port).say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  });
  run_goes_on_after("a frame of 4 GiB", [&](int port) {
    held.emplace_back(port).say_prefix(0xffffffff, 1).say(std::string(4096, 'x'));
  });
  run_goes_on_after("a frame a byte too long", [&](int port) {
    held.emplace_back(port).say_prefix((1U << 20) + 1, 1).say(std::string(4096, 'x'));
  });
  run_goes_on_after("frames that do not end", [&](int port) {
    for (int i = 0; i < 20; ++i)
      held.emplace_back(port).say_prefix(1U << 16, 1).say(std::string(60'000, 'x'));
  });
  run_goes_on_after("a text of 2^40 bytes", [&](int port) {
    Frame frame(FrameKind::hello);
    frame.put(kProtocol).put(kVersion).put(std::int64_t{1}).put(std::int64_t{2}).put(std::int64_t{1234});
    held.emplace_back(port).say(frame.put(std::int64_t{1} << 40));
  });
  run_goes_on_after("a hello that is cut off", [&](int port) {
    Stranger& stranger = held.emplace_back(port);
    const Frame whole = frame_of({}, stranger.nonce());
    stranger.say(Frame(FrameKind::hello, whole.body().substr(0, whole.body().size() - 1)));
  });
  run_goes_on_after("silence, 200 times", [&](int port) {
    for (int i = 0; i < 200; ++i) held.emplace_back(port);
  });
  run_goes_on_after("connections that are closed at once", [&](int port) {
    for (int i = 0; i < 50; ++i) const Stranger stranger(port);
  });
}

TEST_CASE("sockets: a hello of another run is told so, and the run goes on") {
  struct Case {
    FalseHello hello;
    std::string_view answer;
  };
  const std::vector<Case> cases{
      {{.rank = 7}, "a process says it is rank 7 of 2"},
      {{.rank = 0}, "a process says it is rank 0 of 2"},
      {{.rank = -1}, "a process says it is rank -1 of 2"},
      {{.ranks = 3}, "rank 1 was started as one of 3 ranks, rank 0 as one of 2"},
      {{.version = 99}, "rank 1 has version 99 of the protocol, rank 0 has 2: run one version of zeroplan"},
      {{.seed = "9"}, "rank 1 has another seed (9; rank 0 has 1)"},
      {{.secret = "a guess"},
       "a process that says it is rank 1 does not know the secret of this job (ZEROPLAN_SECRET)"},
  };
  for (const Case& c : cases) {
    std::optional<Stranger> stranger;
    run_goes_on_after(std::string(c.answer), [&](int port) {
      stranger.emplace(port);
      stranger->say(frame_of(c.hello, stranger->nonce()));
      Frame answer = stranger->hear();
      CHECK(answer.kind() == FrameKind::refused);
      CHECK(answer.text() == c.answer);
    });
  }
}

TEST_CASE("sockets: a proof is good for one connection") {
  std::optional<Stranger> first, second;
  run_goes_on_after("a hello that was heard elsewhere", [&](int port) {
    first.emplace(port);
    second.emplace(port);
    second->say(frame_of({}, first->nonce()));
    (void)second->nonce();
    CHECK(second->hear().text() ==
          "a process that says it is rank 1 does not know the secret of this job (ZEROPLAN_SECRET)");
  });
}

TEST_CASE("sockets: silent connections use up neither the descriptors nor the processor of a run") {
  Processes processes("sends", 30s);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit few = before;
  few.rlim_cur = 64;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  processes.start(0, 2);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  std::vector<Stranger> silent;
  silent.reserve(80);
  for (int i = 0; i < 80; ++i) silent.emplace_back(processes.port());
  std::this_thread::sleep_for(2s);
  processes.start(1, 2);
  CHECK(processes.wait(0, 30s) == 0);
  // A process that spins takes all of the 2 s.
  CHECK(processes.processor_seconds() < 1.0);
  CHECK(processes.wait(1, 30s) == 0);
}

TEST_CASE("sockets: ranks that disagree about the run are named, on every rank") {
  struct Case {
    std::int64_t ranks;
    std::vector<std::string> variables;
    std::string text;
  };
  const std::vector<Case> cases{
      {4, {}, "rank 1 was started as one of 4 ranks, rank 0 as one of 3"},
      {3, {"SEED=9"}, "rank 1 has another seed (9; rank 0 has 1)"},
      {3,
       {"ZEROPLAN_SECRET=of another job, this one"},
       "a process that says it is rank 1 does not know the secret of this job (ZEROPLAN_SECRET)"}};
  for (const Case& c : cases) {
    CAPTURE(c.text);
    Processes processes("results", 2s);
    processes.start(0, 3);
    processes.start(1, c.ranks, c.variables);
    processes.start(2, 3);
    for (std::size_t i = 0; i < 3; ++i) CHECK(processes.wait(i, 20s) == kExitRunFailed);
    CHECK(processes.errors(1) == c.text + "\n");
    const std::string all =
        fmt::format("rank 1 did not come to 127.0.0.1:{} within 2 s; turned away from 127.0.0.1: {}\n",
                    processes.port(), c.text);
    CHECK(processes.errors(0) == all);
    CHECK(processes.errors(2) == all);
  }
}

TEST_CASE("sockets: of two jobs on one port one goes on and the other is told why") {
  const std::vector<std::string> ours{"ZEROPLAN_SECRET=0123456789abcdef"};
  for (const std::string& variable :
       {std::string("SEED=2"), std::string("ZEROPLAN_SECRET=fedcba9876543210")}) {
    CAPTURE(variable);
    Processes processes("sends", 20s);
    processes.start(0, 2, ours);
    std::vector<std::string> theirs = ours;
    // The first of two variables of one name is the one that getenv() finds.
    theirs.insert(theirs.begin(), variable);
    const std::size_t intruder = processes.start(1, 2, theirs);
    CHECK(processes.wait(intruder, 20s) == kExitRunFailed);
    CHECK(contains(processes.errors(intruder), "rank 1 "));
    const std::size_t own = processes.start(1, 2, ours);
    CHECK(processes.wait(0, 30s) == 0);
    CHECK(processes.wait(own, 30s) == 0);
  }
}

TEST_CASE("sockets: a rank that comes twice is taken once, and again when the first one ended") {
  Processes processes("results", 20s);
  processes.start(0, 3);
  processes.start(1, 3);
  std::this_thread::sleep_for(200ms);
  processes.start(1, 3);
  CHECK(processes.wait(2, 20s) == kExitRunFailed);
  CHECK(processes.errors(2) == "two processes say they are rank 1\n");
  processes.send_signal(1, SIGKILL);
  CHECK(processes.wait(1, 20s) == 128 + SIGKILL);
  processes.start(1, 3);
  processes.start(2, 3);
  for (const std::size_t i : {std::size_t{0}, std::size_t{3}, std::size_t{4}})
    CHECK(processes.wait(i, 60s) == 0);
}

TEST_CASE("sockets: a false rank 0 is not believed") {
  int port = 0;
  const int listener = loopback_socket(&::bind, port);
  REQUIRE(::listen(listener, 8) == 0);
  Processes processes("sends", 4s, port);
  processes.start(1, 2, {"ZEROPLAN_SECRET=0123456789abcdef"});
  const int connection = ::accept(listener, nullptr, nullptr);
  REQUIRE(connection >= 0);
  const auto say = [&](const Frame& frame) {
    const std::array<std::uint32_t, 2> prefix{static_cast<std::uint32_t>(frame.body().size()),
                                              static_cast<std::uint32_t>(frame.kind())};
    (void)::send(connection, prefix.data(), sizeof prefix, MSG_NOSIGNAL);
    (void)::send(connection, frame.body().data(), frame.body().size(), MSG_NOSIGNAL);
  };
  say(Frame(FrameKind::greeting).put(kProtocol).put(kVersion).put(std::string_view("nonce")));
  Frame table(FrameKind::table);
  table.put(std::string_view("token"));
  for (int r = 0; r < 2; ++r) table.put(std::string_view("127.0.0.1")).put(std::int64_t{port});
  say(table.put(std::string_view(std::string(32, 'p'))));
  CHECK(processes.wait(0, 20s) == kExitRunFailed);
  CHECK(processes.errors(0) ==
        "what answered rank 1 as rank 0 does not know the secret of this job (ZEROPLAN_SECRET)\n");
  ::close(connection);
  ::close(listener);
}

TEST_CASE("sockets: nobody listens while ranks run, and before only at the master's address") {
  {
    Processes processes("timeout", 4s);
    processes.start_all(3);
    processes.wait_for_output("before call 1\n");
    for (std::size_t r = 0; r < 3; ++r) CHECK(listening_ports(processes.process(r)).empty());
    for (std::size_t r = 0; r < 3; ++r) processes.send_signal(r, SIGKILL);
  }
  Processes waiting("sends", 4s);
  waiting.start(0, 2, {"MASTER_ADDR=127.0.0.1"});
  const Stranger stranger(waiting.port());  // it listens now
  CHECK(listening_ports(waiting.process(0)) == std::set<int>{waiting.port()});
  sockaddr_in other{};
  other.sin_family = AF_INET;
  other.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  other.sin_port = htons(static_cast<std::uint16_t>(waiting.port()));
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(::connect(descriptor, reinterpret_cast<sockaddr*>(&other), sizeof other) != 0);
  ::close(descriptor);
}
