#include "reports/command_line.hpp"

#include <doctest/doctest.h>

using namespace zeroplan;

TEST_CASE("a command line repeats every option that is set, as the shell must be given it") {
  describe::PlanOptions options;
  options.gpus = 64;
  options.zero = 2;
  options.bucket = 500000000;
  options.partition_activations = true;
  options.constant_buffers = false;
  options.recompute = describe::Recompute::full;
  CHECK(reports::command_line("fit", "my model/config.json", "v100-32gb", options) ==
        "zeroplan fit 'my model/config.json' --hw v100-32gb --gpus 64 --zero 2 --recompute full "
        "--partition-activations "
        "--constant-buffers=false --bucket 500000000");
}

TEST_CASE("shell words") {
  CHECK(reports::shell_word("layers=48,hidden=1600") == "layers=48,hidden=1600");
  CHECK(reports::shell_word("it's") == "'it'\\''s'");
  CHECK(reports::shell_word("$(x)") == "'$(x)'");
  CHECK(reports::shell_word("").size() == 2);
}

// Every plan key has its option here: a key that is added to the planner and forgotten in command_line()
// fails.
TEST_CASE("every key of a plan is in the command line") {
  for (const describe::PlanKey& key : describe::plan_keys()) {
    CAPTURE(key.name);
    const std::string first = key.placeholder.substr(0, key.placeholder.find('|'));
    std::string text = first == "N" ? "2" : first == "SIZE" ? "1GiB" : first;
    if (key.name == "zero") text = "2";
    if (key.name == "optimizer") text = "adam";
    if (key.name == "engine") text = "native";
    describe::Value value;
    value.kind = describe::Value::Kind::scalar;
    value.text = text;
    describe::PlanOptions options;
    Problems problems;
    describe::set_plan_option(options, key.name, value, "test", problems);
    REQUIRE(problems.empty());
    std::string option = "--" + key.name;
    std::replace(option.begin(), option.end(), '_', '-');
    CHECK(reports::command_line("fit", "m", "h", options).find(' ' + option) != std::string::npos);
  }
}
