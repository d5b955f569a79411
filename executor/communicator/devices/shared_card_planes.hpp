#pragma once

#include <memory>
#include <span>
#include <vector>

#include "executor/communicator/communicator.hpp"
#include "planner/program/groups.hpp"

namespace zeroplan::executor {

// The data planes of a rank's groups, in the order of `groups`, where the ranks are threads of one process and share one
// GPU: so all stages and degrees run on a single card. `world` is of threads/; every rank calls it with its own device.
//
//   meetings  two on the host for each collective, where ranks tell each other where their vectors are. They wait for what
//             the other ranks issue, not for what the device does: that is ordered by events across the ranks' streams
//   moves     a rank's part of a collective is a copy or a kernel that reads the other ranks' memory, on its own stream
//   sums      in the order of ranks, in fp32, rounded once: the bits of threads/
//
// Throws NotPossible where the ranks are on different GPUs or in different processes, or more than 32 in a group.
std::vector<std::unique_ptr<DataPlane>> make_shared_card_planes(ControlPlane& world, Device& device,
                                                                std::span<const program::Group> groups);

}  // namespace zeroplan::executor
