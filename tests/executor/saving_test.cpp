#include "executor/saving.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "executor/communicator/threads/thread_communicator.hpp"
#include "executor/error.hpp"
#include "executor/random.hpp"
#include "executor/storage/new_file.hpp"
#include "executor/storage/save_tensors.hpp"
#include "executor/storage/while_meeting.hpp"
#include "planner/error.hpp"
#include "tests/support/command.hpp"

using namespace zeroplan;
using namespace zeroplan::executor;
using zeroplan::test::read_file;
using zeroplan::test::TemporaryFolder;

namespace fs = std::filesystem;

namespace {

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

constexpr Elements kElements = 200'000;

// A file of one tensor that is `value` everywhere.
void save_value(const std::string& path, float value) {
  run_ranks(1, {}, [&](Communicator& world) {
    const std::vector<float> values(kElements, value);
    save_tensors({path, ""}, {{.name = "value", .shape = {kElements}}}, {}, world,
                 [&](TensorSink& sink) { sink.write(0, 0, values); });
  });
}

// The value of such a file. Throws ConfigurationError when it is damaged, and is -1 where it is mixed.
float saved_value(const std::string& path) {
  const MappedTensorFile file(path);
  run_ranks(1, {}, [&](Communicator& world) { require_undamaged(file, world); });
  const std::byte* data = file.data(file.tensors().at(0));
  const float first = load_float(data, program::DataType::fp32);
  for (Elements i = 0; i < kElements; ++i) {
    if (load_float(data + 4 * i, program::DataType::fp32) != first) return -1;
  }
  return first;
}

// A process of its own that runs `work`.
template <class Work>
pid_t start(Work work) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  try {
    work();
  } catch (...) {
    ::_exit(1);
  }
  ::_exit(0);
}

int ended(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("processes that save to one name at the same time leave the state of one of them, whole") {
  const TemporaryFolder folder;
  const std::string path = folder.file("state");
  constexpr int kProcesses = 20;
  std::vector<pid_t> children;
  for (int i = 1; i <= kProcesses; ++i) {
    children.push_back(start([&] { save_value(path, static_cast<float>(i)); }));
  }
  for (const pid_t child : children) {
    CHECK(ended(child) == 0);
    const float value = saved_value(path);
    CHECK(value >= 1);
    CHECK(value <= kProcesses);
  }
  CHECK(names_in(folder.path()) == std::set<std::string>{"state"});
}

TEST_CASE("a process that is killed while it saves leaves the old state or the new one, whole") {
  const TemporaryFolder folder;
  const std::string path = folder.file("state");
  save_value(path, 1);
  std::uint64_t random = 5;
  bool had_partial = false;
  for (int i = 0; i < 25; ++i) {
    const float before = saved_value(path);
    // It saves again and again, so most kills are in the middle of a save.
    const pid_t child = start([&] {
      for (float value = before + 1;; ++value) save_value(path, value);
    });
    random = mix(random);
    std::this_thread::sleep_for(std::chrono::microseconds(2000 + random % 20'000));
    ::kill(child, SIGKILL);
    ended(child);
    CHECK(saved_value(path) >= before);
    had_partial = had_partial || names_in(folder.path()).size() > 1;
  }
  CHECK(had_partial);
  // What the killed ones left goes with the next save.
  save_value(path, 1);
  CHECK(names_in(folder.path()) == std::set<std::string>{"state"});
}

TEST_CASE("a new file leaves those of living processes and of other names alone") {
  const TemporaryFolder folder;
  const std::string path = folder.file("state");
  std::ofstream(path + ".0123456789abcdef.partial") << "of a dead process";
  std::ofstream(path + ".0123456789abcdeg.partial") << "no name of ours";
  std::ofstream(path + ".partial") << "no name of ours";
  const NewFile first(path);
  {
    const NewFile second(path);
    CHECK(fs::exists(first.file().path()));
    CHECK(first.file().path() != second.file().path());
  }
  CHECK(names_in(folder.path()) == std::set<std::string>{fs::path(first.file().path()).filename().string(),
                                                         "state.0123456789abcdeg.partial", "state.partial"});
}

TEST_CASE("what is no ordinary file is not replaced, and a link stays a link") {
  const TemporaryFolder folder;
  const std::string pipe = folder.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS(NewFile{pipe}, doctest::Contains("it is a pipe"), FileError);
  CHECK_THROWS_WITH_AS(NewFile{folder.path()}, doctest::Contains("it is a folder"), FileError);
  const std::string device = folder.file("null");
  if (::mknod(device.c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0) {  // root only
    CHECK_THROWS_WITH_AS(NewFile{device}, doctest::Contains("it is a device"), FileError);
    CHECK_THROWS_WITH_AS(save_value(device, 1), doctest::Contains("it is a device"), DeviceError);
    CHECK(fs::is_character_file(device));
    // A link to one neither.
    fs::create_symlink(device, folder.file("to_null"));
    CHECK_THROWS_WITH_AS(NewFile{folder.file("to_null")}, doctest::Contains("it is a device"), FileError);
  }
  fs::create_directory(folder.file("real"));
  fs::create_symlink("real/state", folder.file("link"));
  CHECK_THROWS_WITH_AS(NewFile{folder.file("link")}, doctest::Contains("link to what is not there"),
                       FileError);
  save_value(folder.file("real/state"), 1);
  save_value(folder.file("link"), 2);
  CHECK(fs::is_symlink(folder.file("link")));
  CHECK(saved_value(folder.file("real/state")) == 2);
}

// Writing takes 1.5 s on one rank and on none of the others, where ranks wait 1 s for each other.
TEST_CASE(
    "a save may take longer than the ranks' timeout, and a rank that is lost meanwhile is still missed") {
  const TemporaryFolder folder;
  const std::string path = folder.file("state");
  const auto slowly = [&](const std::function<void(std::int64_t rank)>& write) {
    run_ranks(3, {.timeout = std::chrono::seconds(1)}, [&](Communicator& world) {
      const std::vector<float> values(100, static_cast<float>(world.rank()));
      save_tensors({path, ""}, {{.name = "value", .shape = {300}}}, {}, world, [&](TensorSink& sink) {
        write(world.rank());
        sink.write(0, world.rank() * 100, values);
      });
    });
  };
  slowly([](std::int64_t rank) {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  });
  const std::string whole = read_file(path);
  CHECK(MappedTensorFile(path).find("value") != nullptr);
  CHECK_THROWS_WITH_AS(slowly([](std::int64_t rank) {
                         if (rank == 1) throw DeviceError("the disk is gone");
                       }),
                       doctest::Contains("rank 1: the disk is gone"), DeviceError);
  CHECK(read_file(path) == whole);
  CHECK(names_in(folder.path()) == std::set<std::string>{"state"});
}

TEST_CASE("states are saved every so many steps, when it is time, and at the end") {
  std::vector<std::int64_t> saved;
  const auto note = [&](const SavedFile&, std::int64_t steps) { saved.push_back(steps); };
  Saver by_steps({"state", 4}, note);
  for (std::int64_t step = 3; step <= 9; ++step) by_steps.after_step(step, false);
  by_steps.finish(9);
  CHECK(saved == std::vector<std::int64_t>{4, 8, 9});

  saved.clear();
  Saver ends_on_one({"state", 4}, note);
  for (std::int64_t step = 1; step <= 4; ++step) ends_on_one.after_step(step, false);
  ends_on_one.finish(4);
  CHECK(saved == std::vector<std::int64_t>{4});

  saved.clear();
  Saver by_time({"state", 0, std::chrono::milliseconds(1)}, note);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  CHECK(by_time.is_time());
  by_time.after_step(5, true);
  by_time.after_step(6, false);
  CHECK(saved == std::vector<std::int64_t>{5});
  CHECK_FALSE(Saver({"state", 0, std::chrono::hours(1)}, note).is_time());

  saved.clear();
  Saver nowhere({"", 1}, note);
  nowhere.after_step(1, true);
  nowhere.finish(1);
  CHECK(saved.empty());
}

TEST_CASE("the last states are kept under names of their own, newer ones of another run too") {
  const TemporaryFolder folder;
  const std::string path = folder.file("state");
  for (const char* other : {"state.step-99", "state.step-x", "other.step-1"})
    std::ofstream(folder.file(other));
  const SavePlan plan{path, 1, std::chrono::milliseconds(0), 2};
  Saver saver(plan, [&](const SavedFile& file, std::int64_t steps) {
    run_ranks(1, {}, [&](Communicator& world) {
      const std::vector<float> values(1, static_cast<float>(steps));
      save_tensors(file, {{.name = "value", .shape = {1}}}, {}, world,
                   [&](TensorSink& sink) { sink.write(0, 0, values); });
    });
    remove_old_states(plan, steps);
  });
  for (std::int64_t step = 8; step <= 12; ++step) saver.after_step(step, false);
  CHECK(names_in(folder.path()) == std::set<std::string>{"state", "state.step-11", "state.step-12",
                                                         "state.step-99", "state.step-x", "other.step-1"});
  CHECK(read_file(path) == read_file(folder.file("state.step-12")));
}
