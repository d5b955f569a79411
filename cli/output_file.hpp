#pragma once

#include <string>
#include <string_view>

#include "cli/command.hpp"

namespace zeroplan::cli {

// Writes `text` to `path` whole or not at all: into a new file beside it, which then takes its place. What
// exists and is not a regular file (a terminal, a pipe, /dev/null) is written directly. Throws
// ConfigurationError naming the option that asked for it.
void write_whole_file(const std::string& path, std::string_view text, const std::string& option = "--out");

// Writes an answer to --out, or to standard output. Throws ConfigurationError.
void give_text(const Request& request, std::string_view text);
// The answer of a command that has one form only; nothing with --quiet.
Answer plain_answer(const Request& request, std::string_view text);

}  // namespace zeroplan::cli
