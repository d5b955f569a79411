#pragma once

#include <filesystem>
#include <string>

#include "executor/machine/nvml.hpp"
#include "planner/found_machine.hpp"

namespace zeroplan::executor {

// Where a machine is read; tests name places of their own.
struct MachinePlaces {
  std::string nvml = kNvmlLibrary;
  std::filesystem::path root = "/";  // of /proc and /sys
};

// The machine that the program runs on: its host, driver, GPUs and network interfaces.
FoundMachine find_machine(const MachinePlaces& places = {});

}  // namespace zeroplan::executor
