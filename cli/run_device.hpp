#pragma once

#include <optional>
#include <string>

#include "cli/command.hpp"
#include "planner/describe/machine/cluster.hpp"

namespace zeroplan::cli {

// What a run's kernels are run on: `--device cpu|cuda[:N]`.
struct RunDevice {
  enum class Kind { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = -1;     // of several of a kind; -1: every rank takes its own
  bool said = false;  // by the user
};

OptionSpec run_device_option();

// Throws ConfigurationError that names the option.
RunDevice read_run_device(const Request& request);

// Why a run on `device` is not one of `machine`, in a sentence; nothing when it is, or when the user asked
// for it by name.
std::optional<std::string> cannot_stand_for(const RunDevice& device, const describe::Cluster& machine);

}  // namespace zeroplan::cli
