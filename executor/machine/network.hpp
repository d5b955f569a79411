#pragma once

#include <filesystem>
#include <vector>

#include "planner/found_machine.hpp"

namespace zeroplan::executor {

// The network interfaces in /sys/class/infiniband and /sys/class/net below `root`, sorted by name, RDMA devices first; an
// interface of an RDMA device is no entry of its own. `gpus`: whose PCIe root is looked for in the same tree.
std::vector<FoundNic> read_nics(const std::vector<FoundGpu>& gpus, const std::filesystem::path& root = "/");

}  // namespace zeroplan::executor
