#include "tests/support/command.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "cli/dispatch.hpp"

namespace zeroplan::test {

std::vector<std::string> split_words(std::string_view line) {
  std::istringstream stream{std::string(line)};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

CommandResult run_words(const std::vector<std::string>& words) {
  std::ostringstream out;
  std::ostringstream err;
  CommandResult result;
  result.exit_code = cli::run(words, out, err);
  result.out = out.str();
  result.err = err.str();
  return result;
}

CommandResult run_command(std::string_view line) { return run_words(split_words(line)); }

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> commands_in(const std::string& text, std::string_view command) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  const std::string prefix = "zeroplan " + std::string(command) + ' ';
  for (std::string line; std::getline(lines, line);) {
    std::string_view rest = line;
    while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
    if (rest.starts_with("$ ")) rest.remove_prefix(2);
    if (rest.starts_with("scripts/run ")) {
      found.emplace_back(rest.substr(sizeof("scripts/run ") - 1));
      if (!found.back().starts_with(std::string(command) + ' ')) found.pop_back();
    } else if (rest.starts_with(prefix)) {
      found.emplace_back(rest.substr(sizeof("zeroplan ") - 1));
    }
  }
  return found;
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "zeroplan-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace zeroplan::test
