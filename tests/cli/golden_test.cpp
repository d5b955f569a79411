#include <doctest/doctest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/support/command.hpp"

// Transcripts in tests/golden: "$ zeroplan ..." lines, each followed by what the program prints on both
// streams and, where it is not 0, a line "[exit code N]". They fix the layout; values have their own tests.
// ZEROPLAN_UPDATE_GOLDEN=1 writes them anew.
namespace {

using zeroplan::test::read_file;

constexpr std::string_view kPrompt = "$ zeroplan";

std::string run_program(const std::string& arguments) {
  const std::string line =
      "cd '" ZEROPLAN_SOURCE "' && '" ZEROPLAN_BINARY "' " + arguments + " 2>&1 </dev/null";
  std::FILE* pipe = ::popen(line.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run " + line);
  std::string output;
  std::array<char, 4096> part{};
  for (std::size_t n = 0; (n = std::fread(part.data(), 1, part.size(), pipe)) > 0;)
    output.append(part.data(), n);
  const int status = ::pclose(pipe);
  const int exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (exit_code != 0) output += "[exit code " + std::to_string(exit_code) + "]\n";
  return output;
}

std::string played(const std::string& transcript) {
  std::string result;
  std::istringstream lines(transcript);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kPrompt)) continue;
    if (!result.empty()) result += '\n';
    result += line + '\n' + run_program(line.substr(kPrompt.size()));
  }
  return result;
}

}  // namespace

TEST_CASE("golden transcripts") {
  const bool update = std::getenv("ZEROPLAN_UPDATE_GOLDEN") != nullptr;
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ZEROPLAN_SOURCE "/tests/golden")) {
    if (entry.path().extension() != ".txt") continue;
    ++count;
    const std::string path = entry.path().string();
    CAPTURE(path);
    const std::string expected = read_file(path);
    const std::string actual = played(expected);
    REQUIRE(!actual.empty());
    if (update) {
      std::ofstream(path) << actual;
    } else {
      CHECK(actual == expected);
    }
  }
  CHECK(count >= 5);
}
