#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/process.hpp"

// Runs that are asked to end by a signal, and what they leave.

using nlohmann::json;
using zeroplan::test::CommandResult;
using zeroplan::test::read_file;
using zeroplan::test::run_shell;
using zeroplan::test::TemporaryFolder;

namespace {

const std::string kRun =
    "'" ZEROPLAN_BINARY "' validate layers=3,hidden=48,heads=4,vocab=259 --seq 24 --dtype fp32 -o json ";

// Steps go on until a signal: none of these runs comes to its planned end.
const std::string kLong = kRun + "--warm-up 1 --steps 100000000 ";

// Waits until some steps were taken, and sends `signal` to what `line` starts, with "$pid" its number.
CommandResult interrupted(const std::string& line, const std::string& log, const std::string& kill) {
  return run_shell(line + " 2>'" + log + "' & pid=$!; until grep -qE 'step [0-9]{2,}/' '" + log +
                   "'; do kill -0 $pid || break; sleep 0.05; done; " + kill + "; wait $pid");
}

std::size_t steps_of(const json& record) { return record["measured"]["steps"].size(); }

void check_record(const std::string& file, const std::string& signal, int ranks) {
  const json record = json::parse(read_file(file));
  CHECK(record["outcome"] == "interrupted");
  CHECK(record["reason"].get<std::string>().starts_with(signal + " after "));
  CHECK(record["measured"]["ranks"] == ranks);
  CHECK(steps_of(record) >= 4);
  CHECK(steps_of(record) < 100000001);
}

// Goes on from the state for a step: its number is the next one.
void check_state(const std::string& state, const std::string& record, const std::string& plan) {
  const json steps = json::parse(read_file(record))["measured"]["steps"];
  const std::int64_t taken = steps.back()["step"];  // a long run's record does not list every step
  const CommandResult next = run_shell(kRun + plan + "--warm-up 0 --steps 1 --resume '" + state + "'");
  CAPTURE(next.err);
  CHECK(next.exit_code == 0);
  CHECK(json::parse(next.out)["measured"]["steps"][0]["step"] == taken + 1);
}

}  // namespace

TEST_CASE("SIGINT and SIGTERM end a run after its step, with state and record saved") {
  // A shell starts what is behind "&" with SIGINT ignored; env takes that back.
  const std::string run = "env --default-signal=INT " + kLong;
  for (const auto& [signal, code] : {std::pair{"INT", 130}, {"TERM", 143}}) {
    const TemporaryFolder folder;
    const std::string files =
        "--save '" + folder.file("state") + "' --out '" + folder.file("record") + "' --gpus 2 --zero 2 ";
    const CommandResult result =
        interrupted(run + files, folder.file("log"), "kill -" + std::string(signal) + " $pid");
    CHECK(result.exit_code == code);
    check_record(folder.file("record"), std::string("SIG") + signal, 2);
    check_state(folder.file("state"), folder.file("record"), "--gpus 2 --zero 2 ");
  }
}

TEST_CASE("a second signal ends a run at once") {
  const TemporaryFolder folder;
  // A step of hours: it is not awaited.
  const CommandResult result = run_shell(
      kRun + "--grad-accum 1000000 --micro-batch 8 --save '" + folder.file("state") + "' 2>'" +
      folder.file("log") + "' & pid=$!; until grep -q Predicted '" + folder.file("log") +
      "'; do kill -0 $pid || break; sleep 0.05; done; sleep 1; kill -TERM $pid; until grep -q second '" +
      folder.file("log") + "'; do kill -0 $pid || break; sleep 0.05; done; kill -TERM $pid; wait $pid");
  CHECK(result.exit_code == 143);
  CHECK(read_file(folder.file("log")).find("a second signal ends at once") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder.file("state")));
}

TEST_CASE("a signal to one of several processes ends all of them after the same step") {
  const TemporaryFolder folder;
  const std::string common = "WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29641 ";
  const std::string run = kLong + "--zero 2 --save '" + folder.file("state") + "' ";
  // Rank 1 gets the signal, rank 0 has the record; `run_shell` returns rank 0's exit code. Rank 1 ends with 0: launchers
  // end all ranks when one ends with another code, also the one that still writes.
  const CommandResult result = interrupted(
      common + "RANK=1 " + run + "& other=$!; " + common + "RANK=0 " + run + "--out '" +
          folder.file("record") + "'",
      folder.file("log"), "kill -TERM $other; wait $other; test $? = 0 || echo \"rank 1 ended otherwise\"");
  CHECK(result.exit_code == 143);
  CHECK(result.out.empty());
  check_record(folder.file("record"), "SIGTERM", 2);
  check_state(folder.file("state"), folder.file("record"), "--gpus 2 --zero 2 ");
}

TEST_CASE("a signal that mpirun passes on ends its ranks after the same step") {
  if (run_shell("command -v mpirun").exit_code != 0) return;
  const TemporaryFolder folder;
  interrupted("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 " +
                  kLong + "--zero 2 --save '" + folder.file("state") + "' --out '" + folder.file("record") +
                  "'",
              folder.file("log"), "kill -USR1 $pid");
  check_record(folder.file("record"), "SIGUSR1", 2);
  check_state(folder.file("state"), folder.file("record"), "--gpus 2 --zero 2 ");
}

TEST_CASE("states are saved every so many steps, the last ones kept, and options that say nothing refused") {
  const TemporaryFolder folder;
  const std::string save = "--save '" + folder.file("state") + "' ";
  const CommandResult result =
      run_shell(kRun + "--gpus 2 --zero 1 --steps 6 --warm-up 1 --save-every 2 --keep 3 " + save);
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  for (const char* kept : {"state", "state.step-4", "state.step-6", "state.step-7"}) {
    CHECK(std::filesystem::exists(folder.file(kept)));
  }
  CHECK_FALSE(std::filesystem::exists(folder.file("state.step-2")));
  CHECK(read_file(folder.file("state")) == read_file(folder.file("state.step-7")));
  const CommandResult next =
      run_shell(kRun + "--steps 1 --warm-up 0 --resume '" + folder.file("state.step-4") + "'");
  CHECK(json::parse(next.out)["measured"]["steps"][0]["step"] == 5);
  for (const char* wrong : {"--save-every 0 ", "--save-every 5x ", "--save-every m ", "--keep 0 "}) {
    CAPTURE(wrong);
    CHECK(run_shell(kRun + save + wrong).exit_code == 2);
  }
  CHECK(run_shell(kRun + save + "--save-every 5x").err.find("or a time like 30s, 10m or 2h") !=
        std::string::npos);
  const CommandResult alone = run_shell(kRun + "--save-every 10m --keep 2");
  CHECK(alone.exit_code == 2);
  CHECK(alone.err.find("--keep: is not used here; it is of --save") != std::string::npos);
  CHECK(run_shell(kRun + "--save '" + folder.path() + "'").err.find("it is a folder") != std::string::npos);
}
