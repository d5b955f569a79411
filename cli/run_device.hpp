#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/command.hpp"
#include "planner/describe/machine/cluster.hpp"

namespace zeroplan::cli {

// What a run's kernels are run on: `--device cpu|cuda[:N]`.
struct RunDevice {
  enum class Kind { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = -1;     // of several of a kind, for all ranks of this process; -1: every rank takes its own
  bool said = false;  // by the user
};

OptionSpec run_device_option();

// Throws ConfigurationError that names the option.
RunDevice read_run_device(const Request& request);

// Why `ranks` that are threads and need `bytes` each cannot share a GPU of `machine`, in a sentence; nothing where they
// can, where `device` gives each one its own, and where the machine is no GPU: the run then asks the GPU itself.
std::optional<std::string> cannot_share(const RunDevice& device, std::int64_t ranks, Bytes bytes,
                                        const describe::Cluster& machine);

// Why a run on `device` is not one of `machine`, in a sentence; nothing when it is, or when the user asked
// for it by name.
std::optional<std::string> cannot_stand_for(const RunDevice& device, const describe::Cluster& machine);

}  // namespace zeroplan::cli
