#pragma once

#include <string>

#include "cli/command.hpp"

namespace zeroplan::cli {

// `zeroplan --help`.
std::string program_help();

// `zeroplan COMMAND --help`.
std::string command_help(const Command& command);

}  // namespace zeroplan::cli
