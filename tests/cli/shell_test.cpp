#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>
#include <string>

#include "tests/support/command.hpp"
#include "tests/support/process.hpp"

// What a shell and man are given, by the shell itself.

using namespace zeroplan::test;

namespace {

// What bash completes the last word of a line to.
std::string completed(const std::string& words) {
  static const TemporaryFolder folder;
  const std::string script = folder.file("completion.bash");
  REQUIRE(run_command("completion bash --out " + script).exit_code == 0);
  const CommandResult result = run_shell(
      fmt::format("bash -c '. {}; COMP_WORDS=({}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _zeroplan; "
                  "printf \"%s\" \"${{COMPREPLY[*]}}\"'",
                  script, words));
  CHECK(result.err.empty());
  return result.out;
}

}  // namespace

TEST_CASE("bash completes commands, models, machines, options and values") {
  CHECK(completed("zeroplan comp") == "compare completion");
  CHECK(completed("zeroplan fit gpt2-x") == "gpt2-xl");
  CHECK(completed("zeroplan fit gpt2 --hw dgx-") == "dgx-a100 dgx-h100");
  CHECK(completed("zeroplan fit gpt2 --recompute \"\"") == "none selective full");
  CHECK(completed("zeroplan validate --micro") == "--micro-batch");
  CHECK(completed("zeroplan compare gpt2 -o h") == "html");
  CHECK(completed("zeroplan hw sh") == "show");
  CHECK(completed("zeroplan fit --out x").empty());  // a file, which bash completes itself
}

TEST_CASE("completions of all shells name every command; another shell is refused") {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = run_command(std::string("completion ") + shell).out;
    for (const char* command : {"fit", "compare", "report", "validate", "calibrate", "doctor"}) {
      CAPTURE(shell);
      CAPTURE(command);
      CHECK(script.find(command) != std::string::npos);
    }
  }
  const CommandResult other = run_command("completion csh");
  CHECK(other.exit_code == 2);
  CHECK(other.err.find("expected one of bash, zsh, fish") != std::string::npos);
}

TEST_CASE("the manual page has every command and option of the help") {
  const std::string page = run_command("manual").out;
  CHECK(page.starts_with(".TH ZEROPLAN 1"));
  for (const char* part : {"zeroplan fit", "zeroplan report", "\\-\\-micro\\-batch", "EXIT STATUS"}) {
    CAPTURE(part);
    CHECK(page.find(part) != std::string::npos);
  }
}
