#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zeroplan::test {

struct CommandResult {
  int exit_code = -1;
  std::string out;
  std::string err;
};

// Runs the program in this process: `line` is what stands after "zeroplan", split at blanks.
CommandResult run_command(std::string_view line);
CommandResult run_words(const std::vector<std::string>& words);

std::vector<std::string> split_words(std::string_view line);

std::string read_file(const std::string& path);

// The commands "zeroplan COMMAND ..." in the text of a page: indented, behind "$ ", or a line of a code
// block.
std::vector<std::string> commands_in(const std::string& text, std::string_view command);

// An empty folder that is gone with this object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + '/' + std::string(name); }

 private:
  std::string path_;
};

}  // namespace zeroplan::test
