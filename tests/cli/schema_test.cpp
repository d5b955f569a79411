#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/command.hpp"
#include "tests/support/json_schema.hpp"

using namespace zeroplan::test;
using nlohmann::json;

namespace {

const std::string kRoot = ZEROPLAN_SOURCE;

constexpr std::array<const char*, 5> kNotReady{"...", "./", ".yaml", "MODEL", "--help"};

json schema() { return json::parse(read_file(kRoot + "/docs/schema/fit.schema.json")); }

// No placeholder, no file of the reader's own.
bool is_ready_to_run(const std::string& command) {
  if (command.find_first_of("<>[]|$'\"#") != std::string::npos) return false;
  return std::none_of(kNotReady.begin(), kNotReady.end(),
                      [&](const char* part) { return command.find(part) != std::string::npos; });
}

// Every `zeroplan fit` command of the documentation and of --help that does not read the reader's own files.
std::vector<std::string> documented_fits() {
  std::vector<std::string> pages{run_command("--help").out, run_command("fit --help").out};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot + "/docs")) {
    if (entry.path().extension() == ".md") pages.push_back(read_file(entry.path().string()));
  }
  if (std::filesystem::exists(kRoot + "/README.md")) pages.push_back(read_file(kRoot + "/README.md"));
  std::vector<std::string> found;
  for (const std::string& page : pages) {
    for (const std::string& command : commands_in(page, "fit")) {
      const bool has_format = command.find(" -o ") != std::string::npos;
      if (!is_ready_to_run(command) || (has_format && command.find("-o json") == std::string::npos)) continue;
      found.push_back(has_format ? command : command + " -o json");
    }
  }
  return found;
}

// The working folder while it lives: documented commands write their files there.
class EmptyWorkingFolder {
 public:
  EmptyWorkingFolder() { std::filesystem::current_path(folder_.path()); }
  ~EmptyWorkingFolder() {
    std::error_code ignored;
    std::filesystem::current_path(before_, ignored);
  }
  EmptyWorkingFolder(const EmptyWorkingFolder&) = delete;
  EmptyWorkingFolder& operator=(const EmptyWorkingFolder&) = delete;

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
  TemporaryFolder folder_;
};

void check_answer(const std::string& command) {
  CAPTURE(command);
  const CommandResult result = run_command(command);
  CAPTURE(result.err);
  constexpr int kCannotSay = 5;
  const bool said = result.exit_code != kCannotSay;
  if (said) REQUIRE(result.exit_code <= 1);
  const json answer = json::parse(result.out);
  for (const std::string& violation : schema_violations(schema(), answer)) FAIL_CHECK(violation);
  const json& values = answer["result"];
  CHECK(values["fits"] == (said ? json(result.exit_code == 0) : json()));
  CHECK(values["missing"].empty() == said);
  std::int64_t sum = 0;
  for (const auto& [category, bytes] : values["by_category_bytes"].items()) sum += bytes.get<std::int64_t>();
  CHECK(sum == values["peak_bytes"]);
  std::int64_t overhead = 0;
  for (const json& term : values["overheads"]) overhead += term["bytes"].get<std::int64_t>();
  CHECK(overhead == values["by_category_bytes"]["overhead"]);
  std::int64_t alive = 0;
  for (const json& buffer : values["alive_at_peak"]) alive += buffer["bytes"].get<std::int64_t>();
  CHECK(alive + overhead == values["peak_bytes"]);
}

}  // namespace

TEST_CASE("every documented fit answers by the schema") {
  const std::vector<std::string> commands = documented_fits();
  CHECK(commands.size() >= 4);
  const EmptyWorkingFolder folder;
  for (const std::string& command : commands) check_answer(command);
}

TEST_CASE("fits of many kinds answer by the schema") {
  const std::vector<std::string> plans{
      "gpt2-xl --hw v100-32gb --gpus 4 --micro-batch 8",
      "deepseek-v3 --hw dgx-h100 --nodes 16 --zero 3",
      "llama2-13b --hw dgx-a100 --zero 3 --offload optimizer --recompute full",
      "llama2-7b --hw dgx-a100 --tp 4 --recompute full --partition-activations --offload-activations",
      "params=7.5B --hw v100-32gb --gpus 64 --zero 2",
      "layers=48,hidden=1600,heads=25,vocab=50257 --hw dgx2",
      "gpt2 --hw cpu",
  };
  for (const std::string& plan : plans) check_answer(fmt::format("fit {} -o json", plan));
}

TEST_CASE("the validator finds what breaks the schema") {
  json answer = json::parse(run_command("fit gpt2 --hw v100-32gb -o json").out);
  REQUIRE(schema_violations(schema(), answer).empty());
  const auto violations = [&](const char* pointer, const json& value) {
    json changed = answer;
    changed[json::json_pointer(pointer)] = value;
    return schema_violations(schema(), changed).size();
  };
  CHECK(violations("/schema", "zeroplan.fit/2") == 1);
  CHECK(violations("/result/fits", "yes") == 1);
  CHECK(violations("/result/peak_bytes", 1.5) == 1);
  CHECK(violations("/result/peak_bytes", -1) == 1);
  CHECK(violations("/result/surplus", 1) == 1);
  CHECK(violations("/assumed/0/key", 3) == 1);
  CHECK(violations("/inputs/plan", json::object()) == 24);
}

TEST_CASE("jsonl is the same answer on one line") {
  const std::string line = run_command("fit gpt2 --hw v100-32gb -o jsonl").out;
  CHECK(std::count(line.begin(), line.end(), '\n') == 1);
  CHECK(json::parse(line) == json::parse(run_command("fit gpt2 --hw v100-32gb -o json").out));
}

TEST_CASE("commands suggested after a no are yes") {
  const json answer =
      json::parse(run_command("fit gpt2-xl --hw v100-32gb --gpus 4 --micro-batch 8 -o json").out);
  REQUIRE(!answer["result"]["suggestions"].empty());
  for (const json& suggestion : answer["result"]["suggestions"]) {
    const std::string command = suggestion["command"];
    CAPTURE(command);
    REQUIRE(command.starts_with("zeroplan "));
    const CommandResult result = run_command(command.substr(9) + " -o json");
    CHECK(result.exit_code == 0);
    CHECK(json::parse(result.out)["result"]["peak_bytes"] == suggestion["peak_bytes"]);
  }
}
