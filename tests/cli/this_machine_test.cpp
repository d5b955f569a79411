#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/command.hpp"
#include "tests/support/json_schema.hpp"
#include "tests/support/process.hpp"

// hw detect and doctor as a user runs them: on whatever machine this is, and with a made-up driver in its place.
using namespace zeroplan::test;
using nlohmann::json;

namespace {

// A driver's library that the loader finds before the machine's own.
CommandResult with_driver(const std::string& machine, const std::string& command) {
  return run_shell(fmt::format("ZEROPLAN_FAKE_NVML={} LD_LIBRARY_PATH='{}/new' '{}' {}", machine,
                               ZEROPLAN_FAKE_NVML, ZEROPLAN_BINARY, command));
}

json answer_of(const CommandResult& result) {
  CAPTURE(result.out);
  CAPTURE(result.err);
  REQUIRE(!result.out.empty());
  return json::parse(result.out);
}

}  // namespace

TEST_CASE("hw detect: exit code 0 with a GPU, 3 without one or without a driver") {
  CHECK(with_driver("h200", "hw detect").exit_code == 0);
  const CommandResult none = with_driver("none", "hw detect -o json");
  CHECK(none.exit_code == 3);
  CHECK(answer_of(none)["hw_reason"].get<std::string>().find("NVIDIA's driver sees none") !=
        std::string::npos);
  const CommandResult unloaded = with_driver("not-loaded", "hw detect");
  CHECK(unloaded.exit_code == 3);
  CHECK(unloaded.out.find("the kernel has not loaded it") != std::string::npos);
  CHECK(unloaded.out.find("logical CPU") != std::string::npos);
}

TEST_CASE("hw detect --describe writes a file that --hw takes") {
  const TemporaryFolder folder;
  const std::string file = folder.file("here.yaml");
  REQUIRE(with_driver("h100-nvl", "hw detect -q --describe " + file).exit_code == 0);
  const CommandResult fit = run_command("fit params=7.5B --gpus 2 --zero 2 -o json --hw " + file);
  CHECK(fit.err.empty());
  CHECK(json::parse(fit.out)["inputs"]["machine"]["devices"] == 2);

  const CommandResult refused = with_driver("none", "hw detect --describe " + folder.file("none.yaml"));
  CHECK(refused.exit_code == 2);
  CHECK(refused.err.find("--describe") != std::string::npos);
  CHECK(!std::filesystem::exists(folder.file("none.yaml")));
  CHECK(run_command("hw list --describe " + file).exit_code == 2);
}

TEST_CASE("doctor: a run on GPUs is not possible with a driver alone") {
  const CommandResult result = with_driver("throttled", "doctor -o json");
  CHECK(result.exit_code == 3);
  const json answer = answer_of(result);
  CHECK(answer["device"] == "cuda");
  CHECK(answer["suffices"] == false);
  const CommandResult text = with_driver("throttled", "doctor");
  CHECK(text.out.find("GPU 1: power cap; GPU 1: hardware thermal slowdown") != std::string::npos);
  CHECK(text.out.find("nvidia-smi -pm 1") != std::string::npos);
  const CommandResult nothing = with_driver("none", "doctor --device cuda");
  CHECK(nothing.exit_code == 3);
  CHECK(nothing.out.find("Missing: ") != std::string::npos);
}

TEST_CASE("doctor: a run on processors is possible where the tests of one are built") {
  const CommandResult result = run_command("doctor --device cpu -o json");
  const json answer = answer_of(result);
  CHECK(answer["device"] == "cpu");
  CHECK(result.exit_code == (answer["suffices"] ? 0 : 3));
  for (const json& finding : answer["findings"]) {
    if (finding["key"] != "cpu_module") continue;
    CHECK(finding["needed"] == true);
    CHECK(finding["state"] == (answer["suffices"] ? "ok" : "missing"));
  }
}

TEST_CASE("doctor and hw detect: every format, the schemas, and bad input") {
  const std::vector<Document> answers{{"doctor", answer_of(run_command("doctor -o json"))},
                                      {"detected", answer_of(run_command("hw detect -o json"))}};
  if (can_validate()) {
    for (const std::string& violation : schema_violations(answers)) FAIL_CHECK(violation);
  }
  for (const char* command : {"doctor", "hw detect"}) {
    for (const char* format : {"table", "json", "jsonl", "csv", "md", "yaml"}) {
      CAPTURE(command);
      CAPTURE(format);
      const CommandResult result = run_command(fmt::format("{} -o {}", command, format));
      CHECK((result.exit_code == 0 || result.exit_code == 3));
      CHECK(result.err.empty());
      CHECK(result.out.size() > 5);
    }
  }
  CHECK(run_command("doctor now").exit_code == 2);
  CHECK(run_command("doctor --device gpu").exit_code == 2);
}
