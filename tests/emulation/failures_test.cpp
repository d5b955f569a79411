#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/process.hpp"

// What can go wrong on GPUs, as a user of `zeroplan validate --device cuda` meets it: a message that says what and, where
// something can be done, what to do; exit code 3 where the machine lacks something and 4 where the run failed; nothing left;
// and an end within two minutes, on a machine that is busy with other things.

using nlohmann::json;
using zeroplan::test::CommandResult;
using zeroplan::test::read_file;
using zeroplan::test::run_shell;
using zeroplan::test::TemporaryFolder;

namespace {

const std::string kModel = " validate layers=2,hidden=32,heads=2,vocab=101 --seq 16 --dtype fp32 ";

CommandResult run(const std::string& environment, const std::string& words,
                  const std::string& program = ZEROPLAN_EMULATED_PROGRAM) {
  return run_shell("env ZEROPLAN_EMULATED_TELL=1 " + environment + " timeout --kill-after=5 120 '" + program +
                   "'" + kModel + "-o json " + words +
                   (words.find("--steps") == std::string::npos ? " --steps 2" : ""));
}

struct Failure {
  std::string name;
  const char* environment;
  const char* plan;
  int exit_code;
  std::vector<std::string> said;  // parts of the reason
};

const std::vector<Failure> kFailures{
    {"no driver", "ZEROPLAN_EMULATED_DRIVER=35", "--device cuda", 3, {"no NVIDIA driver", "nvidia-smi"}},
    {"no GPU", "ZEROPLAN_EMULATED_GPUS=0", "--device cuda", 3, {"CUDA finds no GPU", "nvidia-smi"}},
    {"a driver that does not start",
     "ZEROPLAN_EMULATED_DRIVER=999",
     "--device cuda",
     3,
     {"CUDA does not start"}},
    {"wrong architecture",
     "ZEROPLAN_EMULATED_SM=70",
     "--device cuda",
     3,
     {"compute capability 7.0", "kernels for 8.0 and later"}},
    {"fewer GPUs than ranks",
     "ZEROPLAN_EMULATED_GPUS=2",
     "--device cuda --gpus 3",
     3,
     {"there is no GPU 2: CUDA finds 2", "with --device cuda:0 all ranks run on the first"}},
    {"NCCL too old",
     "ZEROPLAN_EMULATED_NCCL=21703",
     "--device cuda --gpus 2",
     3,
     {"NCCL 2.17.3: all ranks need the same one, 2.18.0 or newer"}},
    {"a plan larger than the card",
     "ZEROPLAN_EMULATED_MIB=302",
     "--device cuda --micro-batch 256",
     3,
     {"the buffers of a rank need", "bytes are free", "zeroplan fit"}},
    {"no room for the workspace of kernels",
     "ZEROPLAN_EMULATED_MIB=304",
     "--device cuda",
     4,
     {"cannot allocate", "bytes are free"}},
    {"a sticky error in the middle of a step",
     "ZEROPLAN_EMULATED_FAIL_OPERATION=gather:2:700",
     "--device cuda",
     4,
     {"step ", "illegal memory access", "finished last"}},
    {"a sticky error while others wait for the rank",
     "ZEROPLAN_EMULATED_FAIL_OPERATION=ncclReduceScatter:2:700",
     "--device cuda --gpus 2 --zero 2",
     4,
     {"step ", "illegal memory access"}},
    {"a sticky error on a GPU that ranks share",
     "ZEROPLAN_EMULATED_FAIL_OPERATION=reduce:4:719",
     "--device cuda:0 --gpus 2 --zero 3",
     4,
     {"unspecified launch failure"}},
    // Whoever waits longest gives up first, and the others may hear of that before they give up themselves.
    {"a rank that does not come",
     "ZEROPLAN_EMULATED_FAIL_NCCL=5:0",
     "--device cuda --gpus 2 --zero 2 --timeout 2",
     4,
     {"step ", "NCCL: call"}},
    {"an NCCL remote error",
     "ZEROPLAN_EMULATED_FAIL_NCCL=5:6",
     "--device cuda --gpus 2 --zero 2",
     4,
     {"step ", "remote process exited or there was a network error"}},
};

void check(const CommandResult& result, int exit_code, const std::vector<std::string>& said) {
  CAPTURE(result.err);
  REQUIRE(result.exit_code == exit_code);
  const json record = json::parse(result.out);
  CHECK(record["outcome"] == (exit_code == 3 ? "not_possible" : "failed"));
  const auto reason = record["reason"].get<std::string>();
  for (const std::string& part : said) {
    const bool is_said = reason.find(part) != std::string::npos;
    const std::string what = fmt::format("{} is not in: {}", part, reason);
    CHECK_MESSAGE(is_said, what);
  }
}

bool nothing_is_left(const CommandResult& result) {
  return result.err.find("emulated CUDA: nothing is left") != std::string::npos;
}

}  // namespace

TEST_CASE("failures on GPUs end with a message, an exit code, and nothing left") {
  for (const Failure& failure : kFailures) {
    CAPTURE(failure.name);
    const CommandResult result = run(failure.environment, failure.plan);
    check(result, failure.exit_code, failure.said);
    CHECK(nothing_is_left(result));
  }
}

TEST_CASE("a rank that fails or dies in another process ends the others") {
  // Rank 0 in front, and rank 1 behind `before` it.
  const auto run_two = [](const std::string& before, const std::string& after) {
    const std::string port = std::to_string(20000 + getpid() % 20000);
    const auto rank = [&](int number, const std::string& with) {
      return "env ZEROPLAN_EMULATED_TELL=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port +
             fmt::format(" RANK={} LOCAL_RANK={} ", number, number) + with +
             " '" ZEROPLAN_EMULATED_PROGRAM "'" + kModel +
             "--steps 2 --timeout 4 -o json --device cuda --gpus 2";
    };
    return run_shell(rank(1, before) + " 2>/dev/null & " + after + rank(0, "timeout --kill-after=5 60"));
  };
  SUBCASE("memory") {
    const CommandResult result =
        run_two("ZEROPLAN_EMULATED_FAIL_CALL=cudaHostAlloc:1:2 timeout --kill-after=5 60", "");
    check(result, 4, {"rank 1", "cannot pin"});
  }
  SUBCASE("killed") {
    const CommandResult result = run_two("", "pid=$!; (sleep 2; kill -KILL $pid) & ");
    check(result, 4, {"rank 1 ended without a word"});
    CHECK(nothing_is_left(result));
  }
}

TEST_CASE("a module or NCCL that is missing is named") {
  const TemporaryFolder folder;
  const std::filesystem::path program = ZEROPLAN_EMULATED_PROGRAM, there = program.parent_path();
  const std::string copy = folder.file("zeroplan");
  std::filesystem::copy_file(program, copy);
  std::filesystem::create_symlink(there.parent_path() / "zeroplan_cpu.so", folder.file("zeroplan_cpu.so"));
  check(run("", "--device cuda", copy), 3, {"zeroplan_cuda.so was not found", "zeroplan doctor"});
  std::filesystem::create_symlink(there / "zeroplan_cuda.so", folder.file("zeroplan_cuda.so"));
  check(run("", "--device cuda --gpus 2", copy), 3, {"zeroplan_nccl.so was not found", "zeroplan doctor"});
  // What a module is linked with may be missing too.
  std::filesystem::create_symlink("/etc/hostname", folder.file("zeroplan_nccl.so"));
  check(run("", "--device cuda --gpus 2", copy), 3, {"zeroplan_nccl.so cannot be opened", "zeroplan doctor"});
  CHECK(run("", "--device cuda --gpus 1", copy).exit_code == 0);
}

// Calls of a run fail, each once: in the middle of what makes a device, an arena, planes, a step. Only what NCCL asks memory
// for can do without it: then the arena is no window.
TEST_CASE("whichever call of CUDA fails, the run ends with a message and nothing left") {
  const std::string shared = "--device cuda:0 --gpus 2 --zero 2 --steps 5",
                    nccl = "--device cuda --gpus 2 --zero 3 --offload optimizer --steps 5";
  struct Sweep {
    std::string call, plan;
    std::vector<int> numbers;
  };
  for (const auto& [call, plan, numbers] :
       {Sweep{"cudaMalloc", shared, {1, 2, 3, 4}}, Sweep{"cudaMalloc", nccl, {1, 2, 3, 4}},
        Sweep{"cudaHostAlloc", nccl, {1, 2, 3, 4, 5}},
        Sweep{"cudaEventCreateWithFlags", shared, {1, 9, 17, 33}},
        Sweep{"cudaEventCreateWithFlags", nccl, {1, 9, 17, 33, 65}},
        Sweep{"cudaStreamCreateWithPriority", shared, {1, 2, 9, 16}},
        Sweep{"cudaLaunchHostFunc", nccl, {1, 4}}, Sweep{"cudaGraphInstantiateWithFlags", shared, {1, 2}},
        Sweep{"cudaEventRecord", shared, {1, 100}}, Sweep{"cudaMemcpyAsync", nccl, {1, 20}}}) {
    for (const int n : numbers) {
      const std::string what = fmt::format("{}, call {} of {}", plan, n, call);
      CAPTURE(what);
      const CommandResult result = run(fmt::format("ZEROPLAN_EMULATED_FAIL_CALL={}:{}:2", call, n), plan);
      CAPTURE(result.err);
      CHECK(nothing_is_left(result));
      const json record = json::parse(result.out);
      if (result.exit_code == 0) {
        CHECK(record["measured"]["exchange"] == "NCCL 2.28.9");
        continue;
      }
      CHECK(result.exit_code == 4);
      const auto reason = record["reason"].get<std::string>();
      const bool says_why =
          reason.find(call) != std::string::npos || reason.find("cannot ") != std::string::npos;
      CHECK_MESSAGE(says_why, reason);
    }
  }
}

TEST_CASE("Ctrl-C ends a run on GPUs after its step, with its record kept and nothing left") {
  for (const char* plan : {"--device cuda:0 --gpus 2 --zero 2", "--device cuda --gpus 2 --zero 3"}) {
    CAPTURE(plan);
    const TemporaryFolder folder;
    const std::string log = folder.file("log"), record_file = folder.file("record"),
                      state = folder.file("state");
    // A shell starts what is behind "&" with SIGINT ignored; env takes that back.
    const CommandResult result =
        run_shell(fmt::format("env --default-signal=INT ZEROPLAN_EMULATED_TELL=1 timeout --foreground 240 "
                              "'{}'{}{} --steps 100000000 -o json "
                              "--out '{}' --save '{}' 2>'{}' & pid=$!; until grep -qE 'step [3-9]/' '{}'; do "
                              "kill -0 $pid || break; sleep "
                              "0.05; done; kill -INT $pid; wait $pid",
                              ZEROPLAN_EMULATED_PROGRAM, kModel, plan, record_file, state, log, log));
    const std::string told = read_file(log);
    CAPTURE(told);
    CHECK(result.exit_code == 130);
    CHECK(told.find("emulated CUDA: nothing is left") != std::string::npos);
    const json record = json::parse(read_file(record_file));
    CHECK(record["outcome"] == "interrupted");
    CHECK(record["reason"].get<std::string>().starts_with("SIGINT after "));
    CHECK(record["measured"]["steps"].size() >= 3);
    CHECK(std::filesystem::exists(state));
  }
}
