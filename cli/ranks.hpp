#pragma once

#include <functional>
#include <ostream>
#include <string>

#include "cli/command.hpp"
#include "executor/launch.hpp"

// How ranks and their ends are told.
namespace zeroplan::cli {

// Ends the process with what is known of ranks that stall: threads that hang cannot be stopped.
[[noreturn]] void end_stalled(const std::string& report);

// Tells `progress` (null: nobody) of processes that rank 0 turned away.
std::function<void(const std::string& why)> teller_of(std::ostream* progress);

// A rank's end that is no answer: its reason on standard error, with the rank where there are others.
Answer end_of_rank(const Request& request, const executor::Launch& launch, const std::string& reason,
                   int exit_code);

}  // namespace zeroplan::cli
