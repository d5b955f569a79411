#include "tests/support/process.hpp"

#include <sys/wait.h>

#include <cstdlib>

namespace zeroplan::test {

CommandResult run_shell(const std::string& line) {
  const TemporaryFolder folder;
  const std::string out = folder.file("out");
  const std::string err = folder.file("err");
  const std::string whole =
      "cd '" ZEROPLAN_SOURCE "' && { " + line + " ; } >'" + out + "' 2>'" + err + "' </dev/null";
  const int status = std::system(whole.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
}

}  // namespace zeroplan::test
