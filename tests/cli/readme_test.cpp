#include <doctest/doctest.h>

#include <iterator>
#include <sstream>
#include <vector>

#include "tests/support/command.hpp"

// The README shows commands behind "$ scripts/run" with what they print, or a part of it. Both must stay
// true.

namespace {

constexpr std::string_view kPrompt = "    $ scripts/run ";

struct Shown {
  std::string command;
  std::string output;
};

std::vector<Shown> shown_in(const std::string& page) {
  std::vector<Shown> result;
  std::istringstream lines(page);
  bool inside = false;
  std::string gap;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kPrompt)) {
      result.push_back({line.substr(kPrompt.size()), ""});
      inside = true;
      gap.clear();
    } else if (inside && line.empty()) {
      gap += '\n';
    } else if (inside && line.starts_with("    ")) {
      result.back().output += gap + line.substr(4) + '\n';
      gap.clear();
    } else {
      inside = false;
    }
  }
  return result;
}

std::string without_trailing_blanks(const std::string& text) {
  std::string result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    result += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  return result;
}

// Of a run, what has no tolerance is the same everywhere; times, the resident set and losses are not.
void check_exact_rows(const std::string& shown, const std::string& printed) {
  std::istringstream lines(shown);
  int rows = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream cells(line);
    std::vector<std::string> words{std::istream_iterator<std::string>(cells), {}};
    if (words.size() < 3 || words.back() != "yes" || words[words.size() - 2] != "0") continue;
    ++rows;
    CAPTURE(line);
    bool found = false;
    std::istringstream others(printed);
    for (std::string other; std::getline(others, other) && !found;) {
      std::istringstream other_cells(other);
      found = words == std::vector<std::string>{std::istream_iterator<std::string>(other_cells), {}};
    }
    CHECK(found);
  }
  CHECK(rows >= 10);
}

}  // namespace

TEST_CASE("what the README shows is what the program prints") {
  const std::vector<Shown> shown = shown_in(zeroplan::test::read_file(ZEROPLAN_SOURCE "/README.md"));
  CHECK(shown.size() >= 2);
  for (const Shown& example : shown) {
    CAPTURE(example.command);
    REQUIRE(!example.output.empty());
    const std::string printed = without_trailing_blanks(zeroplan::test::run_command(example.command).out);
    CAPTURE(printed);
    if (example.command.starts_with("validate")) {
      check_exact_rows(example.output, printed);
    } else {
      CHECK(printed.find(example.output) != std::string::npos);
    }
  }
}
