#pragma once

#include <string>
#include <string_view>

namespace zeroplan::cli {

// Writes `text` to `path` whole or not at all: into a new file beside it, which then takes its place. What
// exists and is not a regular file (a terminal, a pipe, /dev/null) is written directly. Throws
// ConfigurationError naming the option that asked for it.
void write_whole_file(const std::string& path, std::string_view text, const std::string& option = "--out");

}  // namespace zeroplan::cli
