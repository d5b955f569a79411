#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "executor/machine/machine.hpp"
#include "executor/machine/shared_library.hpp"
#include "planner/found_system.hpp"

namespace zeroplan::executor {

// The machine, and what a live run on it needs beside it: zeroplan's modules are opened, CUDA's libraries opened and closed, a
// port listened at and left. `variable` says what the environment has.
FoundSystem find_system(const std::function<std::optional<std::string>(const std::string&)>& variable,
                        const MachinePlaces& places = {});

// Of the files of /proc and /sys below `root`: control groups, huge pages, clock source.
void read_system_files(const std::filesystem::path& root, FoundSystem& system);

// The first of `files` that the loader opens, and what `version_of` says of it.
using VersionFunction = std::optional<std::int64_t>(const SharedLibrary& library);
FoundLibrary find_library(const std::vector<std::string>& files, VersionFunction* version_of);

}  // namespace zeroplan::executor
