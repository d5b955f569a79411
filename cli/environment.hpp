#pragma once

#include <string>
#include <vector>

#include "reports/validation_report.hpp"

namespace zeroplan::cli {

// This machine, as the operating system describes it, and the command that is run on it.
reports::RunEnvironment run_environment(const std::vector<std::string>& words);

}  // namespace zeroplan::cli
