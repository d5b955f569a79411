#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/found_system.hpp"

// What the machine and its software mean for a live run: what is here, what is missing, and the command that mends it.
namespace zeroplan::reports {

enum class FindingState { ok, warning, missing };
std::string_view name_of(FindingState state);

struct Finding {
  std::string key;   // "cuda_runtime"
  std::string what;  // "CUDA runtime"
  FindingState state = FindingState::ok;
  bool needed = false;  // a run on the device that was asked for cannot start without it
  std::string found{};
  std::string why{};   // it matters, half a sentence
  std::string mend{};  // a command; empty where the state is ok
};

enum class RunsOn { cpu, cuda };

// The device that a live run takes where nobody names one: GPUs where the driver sees some.
RunsOn device_of(const FoundSystem& system);

// Of the software and the system for both devices; of the GPUs where the driver sees some, or `device` is cuda.
std::vector<Finding> findings_of(const FoundSystem& system, RunsOn device);

// Whether nothing is missing that is needed.
bool suffices(const std::vector<Finding>& findings);

}  // namespace zeroplan::reports
