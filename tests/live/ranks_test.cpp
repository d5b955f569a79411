#include <doctest/doctest.h>
#include <fmt/format.h>

#include <sstream>

#include "tests/support/process.hpp"

// `zeroplan validate` as several processes: who speaks, and what they refuse.

using zeroplan::test::CommandResult;
using zeroplan::test::read_file;
using zeroplan::test::run_shell;
using zeroplan::test::TemporaryFolder;

namespace {

const std::string kProgram =
    "'" ZEROPLAN_BINARY "' validate layers=3,hidden=48,heads=4,vocab=259 --seq 24 --dtype fp32 ";

// Processes with torchrun's variables, started by one shell line.
class Ranks {
 public:
  Ranks(int ranks, int port) : ranks_(ranks), port_(port) {}

  // The text of a shell for a rank in the background; its exit code goes to a file.
  std::string start(int rank, const std::string& arguments, const std::string& name = {}) const {
    const std::string file = folder_.file(name.empty() ? std::to_string(rank) : name);
    return fmt::format(
        "{{ RANK={} WORLD_SIZE={} MASTER_ADDR=127.0.0.1 MASTER_PORT={} {} {} >'{}.out' 2>'{}.err' ; "
        "echo $? >'{}.code' ; }} & ",
        rank, ranks_, port_, kProgram, arguments, file, file, file);
  }
  // Of standard output, the words: lines of tables are broken anywhere.
  std::string out(const std::string& name) const {
    std::istringstream words(read_file(folder_.file(name + ".out")));
    std::string all;
    for (std::string word; words >> word;) all += (all.empty() ? "" : " ") + word;
    return all;
  }
  std::string err(const std::string& name) const { return read_file(folder_.file(name + ".err")); }
  int code(const std::string& name) const { return std::stoi(read_file(folder_.file(name + ".code"))); }
  // Of standard error, the last line.
  std::string last_line(const std::string& name) const {
    std::istringstream lines(err(name));
    std::string last;
    for (std::string line; std::getline(lines, line);) last = line;
    return last;
  }

 private:
  int ranks_, port_;
  TemporaryFolder folder_;
};

// For a shell: until a process of this host takes connections at the port.
std::string wait_until_listening(int port) {
  return fmt::format("bash -c 'until (: <>/dev/tcp/127.0.0.1/{}) 2>/dev/null; do sleep 0.05; done'; ", port);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a rank with another seed, rate, plan or data is refused and named on every rank") {
  const TemporaryFolder folder;
  run_shell("head -c 5000 README.md >'" + folder.file("a") + "'; cp '" + folder.file("a") + "' '" +
            folder.file("same") + "'; sed 's/a/b/' '" + folder.file("a") + "' >'" + folder.file("b") + "'");
  struct Case {
    std::string ours, theirs, text;
  };
  const std::string data = "--data '" + folder.path();
  const std::vector<Case> cases{
      {"--rate 0.1 --seed 9", "--rate 0.2 --seed 1",
       "rank 1 has another --rate (0.2; rank 0 has 0.1) and another --seed (1; rank 0 has 9)"},
      {"--zero 2", "--zero 1", "rank 1 has another zero_stage (1; rank 0 has 2)"},
      {data + "/a'", data + "/b'", "rank 1 has another --data (file "},
      {"--dropout --dropout-rate 0.2", "--dropout --dropout-rate 0.3",
       "rank 1 has another --dropout-rate (0.3; rank 0 has 0.2)"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    const Ranks ranks(2, 29641);
    const std::string limit = " --timeout 5 ";
    run_shell(ranks.start(0, c.ours + limit) + ranks.start(1, c.theirs + limit) + "wait");
    CHECK(ranks.code("0") == 4);
    CHECK(ranks.code("1") == 4);
    CHECK(contains(ranks.out("0"), "rank 1 did not come"));
    CHECK(contains(ranks.out("0"), c.text));
    CHECK(contains(ranks.err("0"), "zeroplan: turned away from 127.0.0.1: " + c.text));
    CHECK(ranks.out("1").empty());
    CHECK(contains(ranks.last_line("1"), "zeroplan: rank 1: " + c.text));
  }
  // Spelled in another way, at another place, and what is each rank's own: the same run.
  const Ranks ranks(2, 29642);
  run_shell(ranks.start(0, data + "/a' --rate 0.001 --threads 1 --timeout 30") +
            ranks.start(1, data + "/same' --rate 1e-3 --timeout 20") + "wait");
  CHECK(ranks.code("0") == 0);
  CHECK(ranks.code("1") == 0);
}

TEST_CASE("of two jobs on one port one runs, and every process of the other says why it does not") {
  const Ranks ranks(2, 29643);
  run_shell(ranks.start(0, "--seed 1 --timeout 20", "a0") + wait_until_listening(29643) +
            ranks.start(0, "--seed 2 --timeout 20", "b0") + ranks.start(1, "--seed 2 --timeout 20", "b1") +
            "sleep 1; " + ranks.start(1, "--seed 1 --timeout 20", "a1") + "wait");
  CHECK(ranks.code("a0") == 0);
  CHECK(ranks.code("a1") == 0);
  CHECK(ranks.code("b0") == 4);
  CHECK(contains(ranks.out("b0"), "cannot listen at 127.0.0.1:29643: Address already in use"));
  CHECK(ranks.code("b1") == 4);
  CHECK(contains(ranks.last_line("b1"), "zeroplan: rank 1: rank 1 has another --seed (2; rank 0 has 1)"));
}

TEST_CASE("when rank 0 dies, never comes or is another program, the other ranks say so") {
  const std::string endless = "--steps 100000 --timeout 20";
  const Ranks killed(3, 29644);
  const TemporaryFolder folder;
  const std::string progress = folder.file("progress");
  run_shell(killed.start(1, endless) + killed.start(2, endless) +
            "RANK=0 WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=29644 " + kProgram + endless +
            " >/dev/null 2>'" + progress + "' & zero=$!; until grep -q 'step ' '" + progress +
            "'; do sleep 0.05; done; kill -9 $zero; wait");
  for (const char* rank : {"1", "2"}) {
    CAPTURE(killed.last_line(rank));
    CHECK(killed.code(rank) == 4);
    CHECK(contains(killed.last_line(rank),
                   fmt::format("zeroplan: rank {}: rank 0 ended without a word; rank 0 was at: ", rank)));
  }

  const Ranks headless(2, 29645);
  run_shell(headless.start(1, "--timeout 1") + "wait");
  CHECK(headless.code("1") == 4);
  CHECK(contains(headless.last_line("1"),
                 "zeroplan: rank 1: rank 1 could not reach rank 0 at 127.0.0.1:29645"));

  const Ranks foreign(2, 29646);
  run_shell(
      "python3 -c 'import socket,time; s=socket.create_server((\"127.0.0.1\",29646)); time.sleep(60)' & "
      "python=$!; " +
      wait_until_listening(29646) + foreign.start(1, "--timeout 1") + "one=$!; " +
      foreign.start(0, "--timeout 1") + "zero=$!; wait $one $zero; kill $python");
  CHECK(foreign.code("0") == 4);
  CHECK(contains(foreign.out("0"), "cannot listen at 127.0.0.1:29646: Address already in use"));
  CHECK(foreign.code("1") == 4);
  CHECK(contains(foreign.last_line("1"),
                 "zeroplan: rank 1: rank 1 met no rank 0 at 127.0.0.1:29646: what listens there did not "
                 "greet within 1 s"));
}

TEST_CASE("processes of MPI with different settings do not train apart") {
  if (run_shell("command -v mpirun").exit_code != 0) return;
  const CommandResult result =
      run_shell("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 1 " +
                kProgram + "--gpus 2 --seed 1 : -n 1 " + kProgram + "--gpus 2 --seed 9");
  CHECK(result.exit_code == 4);
  CHECK(contains(result.err, "rank 1 has another --seed (9; rank 0 has 1)"));
}

TEST_CASE("an address that others can reach needs a secret, which is never shown") {
  const std::string run = "RANK=0 WORLD_SIZE=2 MASTER_PORT=29647 MASTER_ADDR=0.0.0.0 ";
  const CommandResult none = run_shell(run + kProgram);
  CHECK(none.exit_code == 2);
  CHECK(contains(none.err, "ZEROPLAN_SECRET: not set, but MASTER_ADDR is 0.0.0.0, which others can reach"));
  const CommandResult weak = run_shell(run + "ZEROPLAN_SECRET=hunter2 " + kProgram);
  CHECK(weak.exit_code == 2);
  CHECK(contains(weak.err, "ZEROPLAN_SECRET: found 7 characters, expected 16 or more"));
  CHECK(!contains(weak.err, "hunter2"));
}
