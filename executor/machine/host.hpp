#pragma once

#include <filesystem>

#include "planner/found_machine.hpp"

namespace zeroplan::executor {

// The processors and the memory, of /proc and /sys below `root`.
FoundHost read_host(const std::filesystem::path& root = "/");

}  // namespace zeroplan::executor
