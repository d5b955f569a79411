#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "planner/describe/plan/plan.hpp"
#include "tests/describe/plan/plan_support.hpp"

using namespace zeroplan;
using namespace zeroplan::describe;
using zeroplan::testing::contains;
using zeroplan::testing::problems_of;

namespace {

// A file of the test's own folder, removed with it.
struct TemporaryFile {
  TemporaryFile(const std::string& name, const std::string& text) {
    folder = std::filesystem::temp_directory_path() / "zeroplan_plan_file_test";
    std::filesystem::create_directories(folder);
    path = folder / name;
    std::ofstream(path) << text;
  }
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  std::filesystem::path folder;
  std::filesystem::path path;
};

PlanFile read(const std::string& name, const std::string& text) {
  const TemporaryFile file(name, text);
  return read_plan_file(file.path.string());
}

}  // namespace

TEST_CASE("a file given with -f is recognised by its keys") {
  CHECK(read("plan.yaml", "tp: 2\nmodel: gpt2\n").format == "zeroplan");
  CHECK(read("plan.json", "{\"tp\": 2}").options.tp == 2);
  CHECK(read("ds_config.json", "{\"zero_optimization\": {\"stage\": 2}}").format == "DeepSpeed");
  CHECK(read("no_extension", "\n  {\"train_micro_batch_size_per_gpu\": 2}").options.micro_batch == 2);
  CHECK(read("accelerate.yaml", "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n").format ==
        "accelerate FSDP");
  CHECK(contains(problems_of([] { read("accelerate.yaml", "compute_environment: LOCAL_MACHINE\n"); }),
                 "fsdp_config: missing"));
}

TEST_CASE("a file that cannot be read is one clear problem") {
  CHECK(contains(problems_of([] { read_plan_file("/nonexistent/plan.yaml"); }), "/nonexistent/plan.yaml"));
  CHECK(contains(problems_of([] { read_plan_file("/"); }), "/: "));
  CHECK_FALSE(problems_of([] { read("cut.json", "{\"tp\": "); }).empty());
  CHECK_FALSE(problems_of([] { read("twice.yaml", "tp: 1\ntp: 2\n"); }).empty());
  CHECK_FALSE(problems_of([] { read("empty.yaml", ""); }).empty());
}

TEST_CASE("a DeepSpeed file may be Hjson, as DeepSpeed reads it") {
  const PlanFile file =
      read("ds.json",
           "{\n  # the stage\n  zero_optimization: {\"stage\": 2,},\n  \"fp16\": {\"enabled\": true},\n}\n");
  CHECK(file.format == "DeepSpeed");
  CHECK(file.options.zero == 2);
  CHECK(file.options.dtype == Precision::fp16);
  // What is wrong in a file of JSON is told as JSON's parser sees it, and once.
  CHECK(contains(problems_of([] { read("ds.json", "{\"zero_optimization\": {\"stage\": 7}}"); }),
                 "found \"7\""));
  CHECK_FALSE(problems_of([] { read("plan.json", "{\"tp\": 2,}"); }).empty());
}
