#pragma once

#include <string>

#include "cli/command.hpp"

namespace zeroplan::cli {

// `zeroplan` alone: what it is for, and its commands.
std::string short_help();

// `zeroplan --help`.
std::string program_help();

// `zeroplan COMMAND --help`.
std::string command_help(const Command& command);

}  // namespace zeroplan::cli
