#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reports/validation_report.hpp"

namespace zeroplan::cli {

// This machine, as the operating system describes it, and the command that is run on it.
reports::RunEnvironment run_environment(const std::vector<std::string>& words);

// What built this program, as "g++ 12.2.0".
std::string_view compiler_name();

}  // namespace zeroplan::cli
