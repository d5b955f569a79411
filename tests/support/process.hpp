#pragma once

#include <string>

#include "tests/support/command.hpp"

namespace zeroplan::test {

// Runs `line` in a shell, in the root of the sources: what it prints on standard output, and on standard
// error. Exit code -1 when a signal ended it.
CommandResult run_shell(const std::string& line);

}  // namespace zeroplan::test
