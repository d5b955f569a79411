#pragma once

#include <string>
#include <string_view>

#include "cli/command.hpp"

namespace zeroplan::cli {

// `zeroplan --help`.
std::string program_help();

// `zeroplan COMMAND --help`.
std::string command_help(const Command& command);

// "0.1.0".
std::string_view version();

}  // namespace zeroplan::cli
