#pragma once

#include <string>
#include <string_view>

#include "planner/describe/plan/plan.hpp"

namespace zeroplan::reports {

// The command that asks the same again, to paste into a shell: every option that is set, and no plan file.
std::string command_line(std::string_view command, std::string_view model, std::string_view hardware,
                         const describe::PlanOptions& options);

// `text` as one word of a POSIX shell.
std::string shell_word(std::string_view text);

}  // namespace zeroplan::reports
