#include "executor/run_identity.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <mutex>
#include <set>

#include "executor/communicator/threads/thread_communicator.hpp"
#include "executor/error.hpp"
#include "planner/program/compile.hpp"
#include "tests/support/command.hpp"
#include "tests/support/plans.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;
using zeroplan::test::TemporaryFolder;

TEST_CASE("run identity: what differs is named with both values, the first three") {
  const RunIdentity ours{{"seed", "1"}, {"rate", "0.1"}, {"zero_stage", "2"}, {"dtype", "fp32"}};
  CHECK(difference_text(1, ours, ours).empty());
  RunIdentity theirs = ours;
  theirs[0].value = "9";
  CHECK(difference_text(3, theirs, ours) == "rank 3 has another seed (9; rank 0 has 1)");
  theirs[2].value = "1";
  CHECK(difference_text(3, theirs, ours) ==
        "rank 3 has another seed (9; rank 0 has 1) and another zero_stage (1; rank 0 has 2)");
  theirs.pop_back();
  theirs.push_back({"data", "x"});
  CHECK(
      difference_text(3, theirs, ours) ==
      "rank 3 has another seed (9; rank 0 has 1) and another zero_stage (1; rank 0 has 2) and another dtype "
      "(none; rank 0 has fp32) and 1 more that differ");
}

TEST_CASE("run identity: every rank of a group ends with the same words, whoever differs") {
  const auto texts_of = [](const std::function<RunIdentity(std::int64_t)>& identity_of) {
    std::set<std::string> texts;
    std::mutex mutex;
    int ended = 0;
    run_ranks(4, {}, [&](Communicator& world) {
      std::string text;
      try {
        require_same_identity(world, identity_of(world.rank()));
      } catch (const CommunicationError& error) {
        text = error.what();
      }
      const std::lock_guard lock(mutex);
      texts.insert(text);
      ++ended;
    });
    CHECK(ended == 4);
    return texts;
  };
  CHECK(texts_of([](std::int64_t) { return RunIdentity{{"seed", "1"}}; }) == std::set<std::string>{""});
  // Another length, the same length, another field, and none at all.
  const std::string end = ": start every rank of a run with the same command and files";
  CHECK(texts_of([](std::int64_t rank) {
          return RunIdentity{{"seed", rank == 2 ? "12" : "1"}};
        }) == std::set<std::string>{"rank 2 has another seed (12; rank 0 has 1)" + end});
  CHECK(texts_of([](std::int64_t rank) {
          return RunIdentity{{"seed", rank == 0 ? "2" : "1"}};
        }) == std::set<std::string>{"rank 1 has another seed (1; rank 0 has 2); so it is with 2 more" + end});
  CHECK(texts_of([](std::int64_t rank) {
          return rank == 3 ? RunIdentity{} : RunIdentity{{"seed", "1"}};
        }) == std::set<std::string>{"rank 3 has another seed (none; rank 0 has 1)" + end});
}

TEST_CASE("run identity: a file is what is in it, not where it is") {
  const TemporaryFolder folder;
  const auto file = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(folder.file(name), std::ios::binary) << bytes;
    return file_digest(folder.file(name));
  };
  std::string bytes(3'000'000, 'a');
  const std::string digest = file("a", bytes);
  CHECK(digest.size() == 32);
  CHECK(file("b", bytes) == digest);
  CHECK(file("longer", bytes + "a") != digest);
  for (const std::size_t place : {std::size_t{0}, bytes.size() - 1}) {
    std::string other = bytes;
    other[place] = 'b';
    CHECK(file("other", other) != digest);
  }
  // Every byte of a file that fits the blocks.
  for (const std::size_t size : {1U, 16383U, 16384U, 16385U, 700'000U}) {
    const std::string whole(size, 'a');
    const std::string of_whole = file("whole", whole);
    for (std::size_t place = 0; place < size; place += 1 + size / 97) {
      std::string other = whole;
      other[place] = 'b';
      CHECK(file("other", other) != of_whole);
    }
  }
  CHECK(file("empty", "").size() == 32);
  CHECK(file_digest(folder.path()).empty());
  CHECK(file_digest(folder.file("absent")).empty());
  CHECK(file_digest("/dev/zero").empty());
}

TEST_CASE("run identity: programs of different plans have different digests") {
  std::set<std::string> digests;
  for (const int stage : {0, 1, 2, 3}) {
    for (const std::int64_t sequence : {8, 16}) {
      describe::Plan plan = test::plain_plan();
      plan.data_parallel = 2;
      plan.zero_stage = stage;
      plan.sequence = sequence;
      const std::string digest = digest_of(program::compile(test::small_gpt(), plan, {}));
      CHECK(digest == digest_of(program::compile(test::small_gpt(), plan, {})));
      CHECK(digests.insert(digest).second);
    }
  }
}
