#include <doctest/doctest.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "reports/explanation.hpp"
#include "tests/support/command.hpp"
#include "tests/support/process.hpp"

// docs/cli.md promises that what is written for people has at most 100 columns.
using namespace zeroplan::test;

namespace {

std::size_t columns_of(std::string_view line) {
  std::size_t columns = 0;
  for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
  return columns;
}

void check_width(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    CHECK(columns_of(line) <= 100);
  }
}

}  // namespace

TEST_CASE("tables and help have at most 100 columns") {
  for (const char* command :
       {"models list",
        "hw list",
        "hw show dgx2",
        "hw show a100",
        "models show deepseek-v3",
        "models show gpt2-xl",
        "explain",
        "compare llama2-70b --hw dgx-h100 --nodes 4",
        "compare deepseek-v3 --hw dgx-h100 --nodes 128 --tokens 10T --price 2.5",
        "compare gpt2 --hw dgx-a100 --nodes 512 --global-batch 1048576 --engine deepspeed",
        "fit deepseek-v3 --hw dgx-h100 --nodes 4",
        "fit llama2-70b --hw rtx-4090",
        "fit gpt2-xl --hw dgx2 --zero 2 --tokens 300B --price 2",
        "fit params=7.5B --hw v100-32gb --gpus 64",
        ("accuracy " ZEROPLAN_SOURCE "/tests/reference/runs/measured_runs.csv"),
        "--help",
        "help fit",
        "help compare",
        "help explain",
        "help validate",
        "help calibrate",
        "help models",
        "help hw",
        "help accuracy"}) {
    CAPTURE(std::string(command));
    const CommandResult result = run_command(command);
    CHECK(result.exit_code <= 1);
    CHECK(!result.out.empty());
    check_width(result.out);
  }
}

TEST_CASE("every explanation has at most 100 columns") {
  for (const char* plan :
       {"gpt2-xl --hw dgx-a100 --nodes 2 --zero 3", "deepseek-v3 --hw dgx-h100 --nodes 16 --zero 2",
        "llama2-13b --hw dgx-a100 --tp 4 --recompute full --partition-activations"}) {
    for (const zeroplan::reports::ExplainKey& key : zeroplan::reports::explain_keys()) {
      const CommandResult result = run_command("explain " + key.name + ' ' + plan);
      if (result.exit_code != 0) continue;  // a key without a value for this plan
      CAPTURE(key.name);
      check_width(result.out);
    }
  }
}

// Answers for people in the transcripts; errors are a line each, and the other formats are for programs.
TEST_CASE("the transcripts have at most 100 columns") {
  std::size_t commands = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ZEROPLAN_SOURCE "/tests/golden")) {
    std::istringstream lines(read_file(entry.path().string()));
    bool for_people = true;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("$ zeroplan")) {
        const std::size_t format = line.find(" -o ");
        for_people = format == std::string::npos || line.find(" -o table") != std::string::npos;
        commands += for_people ? 1 : 0;
        continue;
      }
      if (!for_people || line.starts_with("zeroplan: ")) continue;
      CAPTURE(line);
      CHECK(columns_of(line) <= 100);
    }
  }
  CHECK(commands > 20);
}

TEST_CASE("a validation has at most 100 columns") {
  const CommandResult result =
      run_shell("'" ZEROPLAN_BINARY
                "' validate layers=2,hidden=64,heads=4,vocab=128 --gpus 2 --zero 3 --seq 16 --steps 1");
  CHECK(result.out.find("predicted") != std::string::npos);
  check_width(result.out);
}
