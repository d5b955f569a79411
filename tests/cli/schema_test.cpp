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

void check_valid(const std::vector<Document>& documents) {
  if (!can_validate()) {
    MESSAGE("not validated: python3-jsonschema is not installed");
    return;
  }
  for (const std::string& violation : schema_violations(documents)) FAIL_CHECK(violation);
}

// The answer of a fit, whose numbers add up.
Document fit_answer(const std::string& command) {
  CAPTURE(command);
  const CommandResult result = run_command(command);
  CAPTURE(result.err);
  constexpr int kCannotSay = 5;
  const bool said = result.exit_code != kCannotSay;
  if (said) REQUIRE(result.exit_code <= 1);
  json answer = json::parse(result.out);
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
  return {"fit", std::move(answer)};
}

// Where a property has neither a description of its own nor one that it refers to, and where an object takes what it
// does not name.
void find_undescribed(const json& schema, const std::string& place, std::vector<std::string>& found) {
  const json properties = schema.value("properties", json::object());
  for (const auto& [key, property] : properties.items()) {
    std::string inner = place;
    inner.append("/").append(key);
    if (!property.is_object()) continue;  // false: must not be there
    if (!property.contains("description") && !property.contains("$ref")) found.push_back(inner);
    find_undescribed(property, inner, found);
  }
  if (schema.contains("properties") && schema.contains("type") &&
      schema.value("additionalProperties", true)) {
    found.push_back(place + ": takes any key");
  }
  if (schema.contains("items")) find_undescribed(schema["items"], place, found);
  for (const json& one : schema.value("oneOf", json::array())) find_undescribed(one, place, found);
}

}  // namespace

TEST_CASE("every documented fit answers by the schema") {
  const std::vector<std::string> commands = documented_fits();
  CHECK(commands.size() >= 4);
  const EmptyWorkingFolder folder;
  std::vector<Document> answers;
  answers.reserve(commands.size());
  for (const std::string& command : commands) answers.push_back(fit_answer(command));
  check_valid(answers);
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
  std::vector<Document> answers;
  answers.reserve(plans.size());
  for (const std::string& plan : plans) answers.push_back(fit_answer(fmt::format("fit {} -o json", plan)));
  check_valid(answers);
}

// calibrate: tests/live/calibrate_test.cpp; validate: tests/cli/validation_schema_test.cpp.
TEST_CASE("every command that plans or lists answers by its schema") {
  struct Case {
    const char* schema;
    const char* command;
  };
  const std::vector<Case> cases{
      {"compare", "compare gpt2-xl --hw dgx2 --tokens 1B --price 2"},
      {"compare", "compare gpt2-xl --hw v100-32gb --gpus 4 --micro-batch 16"},
      {"compare", "compare params=7.5B --hw v100-32gb --gpus 64"},
      {"explain_keys", "explain"},
      {"explain", "explain peak_bytes gpt2 --hw dgx-a100 --zero 3"},
      {"explain", "explain training.cost gpt2 --hw dgx-a100 --tokens 1B --price 2"},
      {"explain", "explain active_parameters deepseek-v3 --hw dgx-h100 --nodes 16"},
      {"program", "explain --program gpt2 --hw dgx-a100 --zero 3 --grad-accum 2 --offload optimizer"},
      {"program", "explain --program llama2-7b --hw dgx-a100 --tp 4 --recompute full"},
      {"hardware_list", "hw list"},
      {"machine", "hw show dgx-a100"},
      {"machine", "hw show v100-32gb"},
      {"models", "models list"},
      {"model_description", "models show deepseek-v3"},
      {"model_description", "models show gemma2-9b"},
      {"model_description", "models show params=7.5B"},
      {"model_count", "models count gpt2"},
      {"accuracy", "accuracy " ZEROPLAN_TEST_DATA "/runs/measured_runs.csv --quality ABC"},
  };
  std::vector<Document> answers;
  for (const Case& one : cases) {
    const CommandResult result = run_command(fmt::format("{} -o json", one.command));
    CAPTURE(one.command);
    CAPTURE(result.err);
    REQUIRE(result.exit_code <= 1);
    answers.push_back({one.schema, json::parse(result.out)});
  }
  const TemporaryFolder folder;
  const std::string trace = folder.file("trace.json");
  REQUIRE(run_command("fit gpt2 --hw dgx-a100 --zero 3 --recompute full -q --trace " + trace).exit_code == 0);
  answers.push_back({"trace", json::parse(read_file(trace))});
  check_valid(answers);
}

TEST_CASE("every key of a schema says its unit or meaning, and no object takes keys that it does not name") {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kRoot + "/docs/schema")) {
    ++count;
    std::vector<std::string> found;
    find_undescribed(json::parse(read_file(entry.path().string())), entry.path().filename().string(), found);
    for (const std::string& place : found) FAIL_CHECK(place);
  }
  CHECK(count >= 15);
}

TEST_CASE("the validator finds what breaks a schema") {
  if (!can_validate()) return;
  const json fit = json::parse(run_command("fit gpt2 --hw v100-32gb -o json").out);
  const json compare = json::parse(run_command("compare gpt2 --hw v100-32gb --gpus 4 -o json").out);
  std::vector<Document> broken;
  const auto change = [&](const char* schema, const json& answer, const char* pointer, const json& value) {
    json changed = answer;
    changed[json::json_pointer(pointer)] = value;
    broken.push_back({schema, changed});
  };
  const auto remove = [&](const char* schema, const json& answer, const char* from, const char* key) {
    json changed = answer;
    changed[json::json_pointer(from)].erase(key);
    broken.push_back({schema, changed});
  };
  change("fit", fit, "/schema", "zeroplan.fit/2");
  change("fit", fit, "/result/fits", "yes");
  change("fit", fit, "/result/peak_bytes", 1.5);
  change("fit", fit, "/result/peak_bytes", -1);
  change("fit", fit, "/result/surplus", 1);
  change("fit", fit, "/assumed/0/key", 3);
  change("fit", fit, "/inputs/plan", json::object());
  remove("fit", fit, "/result", "traffic_psi");
  change("compare", compare, "/result/strategies/0/surplus", 1);
  change("compare", compare, "/inputs/model/surplus", 1);
  change("compare", compare, "/result/strategies/0/exposed_seconds/compute", "long");
  remove("compare", compare, "/result/strategies/0", "peak_bytes");
  remove("compare", compare, "/result/strategies/0", "possible");
  REQUIRE(schema_violations({{"fit", fit}, {"compare", compare}}).empty());
  const std::vector<std::string> found = schema_violations(broken);
  for (std::size_t i = 0; i < broken.size(); ++i) {
    CAPTURE(i);
    const std::string number = std::to_string(i) + ' ';
    CHECK(std::any_of(found.begin(), found.end(),
                      [&](const std::string& line) { return line.starts_with(number); }));
  }
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
