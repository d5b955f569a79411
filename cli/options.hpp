#pragma once

#include <string>
#include <vector>

#include "cli/command.hpp"
#include "planner/error.hpp"

// Options are taken as text; what a value means is decided by the planner's readers, the same for files and
// options.
namespace zeroplan::cli {

// Every option of a command, plan options last, in the order help shows them.
std::vector<OptionSpec> options_of(const Command& command);

// One option as it stood on the command line.
struct GivenOption {
  std::string name;  // "--tp"
  std::string key;
  std::string text;  // "true" for an option without a value
  bool of_plan = false;
};

struct GivenLine {
  std::vector<std::string> arguments;
  std::vector<GivenOption> options;
  bool help = false;
};

// Splits the words after the command's name. Unknown options (with the nearest), missing values and options
// given twice are entered in `problems`.
GivenLine split_line(const Command& command, const std::vector<std::string>& words, Problems& problems);

// Makes a request of them: reads the plan file, then --set, then the options. Throws ConfigurationError with
// everything that is wrong, `problems` included.
Request read_request(const Command& command, const GivenLine& line, Problems& problems);

// MODEL, at position `index` of the arguments or from the plan file, as the only one left. Throws
// ConfigurationError when it is missing or more arguments follow.
std::string model_argument(const Request& request, std::size_t index = 0);

// The first argument of a command that does several things, one of `actions`; `list` and `detect` take no
// more. Throws ConfigurationError.
std::string action_argument(const Request& request, const std::vector<std::string>& actions);

// NAME of `hw show`. Throws ConfigurationError when it is missing or not the last.
std::string machine_argument(const Request& request);

// --hw or the plan file's `hw`; throws ConfigurationError when neither says.
const std::string& hardware_argument(const Request& request);

}  // namespace zeroplan::cli
