#pragma once

#include <cstdint>

#include "cli/command.hpp"
#include "cli/run_device.hpp"
#include "executor/run/training_run.hpp"

namespace zeroplan::cli {

// The options of a live run that are not the plan's.
struct LiveSettings {
  executor::RunSettings run;
  std::int64_t against_one_rank = 0;  // steps that are taken again on one rank
  bool force = false;
  RunDevice device;
};

// Throws ConfigurationError with every option that is wrong.
LiveSettings read_live_settings(const Request& request);

// Throws ConfigurationError with every option that was given and that a run of the plan would not use: a loss
// scale in fp32, Adam's epsilon without Adam.
void require_used(const Request& request, const describe::Plan& plan);

}  // namespace zeroplan::cli
