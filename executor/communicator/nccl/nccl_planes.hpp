#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "executor/communicator/control_plane.hpp"
#include "executor/communicator/data_plane.hpp"
#include "executor/device/block_source.hpp"
#include "planner/program/groups.hpp"

namespace zeroplan::executor {

struct NcclOptions {
  // Of one collective, from where this rank's device begins it; of starting and splitting communicators.
  std::chrono::milliseconds timeout{60'000};
  // Of ending the communicators, after which they are given up.
  std::chrono::milliseconds finalize_timeout{5'000};
};

// The data planes of a rank's groups over NCCL, in the order of `groups`; groups are those of the program, and every rank of
// `world` calls it with its own. Each rank is a process with a GPU of its own, `device`.
//
//   groups    one communicator of all ranks, whose id is shared over `world`, and one that is split off for each group
//   order     all ranks issue the collectives of all groups in the program's one order, and a device runs them one after
//             the other in that order, also where they are on different streams: two communicators that are busy in
//             another order on another rank hang (NVIDIA/nccl issues 195 and 522)
//   windows   where every rank's device has one block of nccl_blocks(), of the same size, it is registered once with each
//             group's communicator: collectives of memory at the same place in it on all ranks then take NCCL's fastest way
//   capture   a call to a stream that is captured becomes part of the graph. Its order among other calls is then the
//             graph's, and nobody watches how long it takes. Graphs end before the planes
//   sums      of 16-bit types are rounded at each rank of a ring
//   bytes     NCCL says of no call what it moved: Moved has what the call cannot do without
//   errors    communicators do not block. A thread asks them for errors; where one has one, or a collective lasts longer
//             than the timeout, it aborts them all, which ends what the device still runs of them, and a CommunicationError
//             comes out of the device
//
// Throws NotPossible where NCCL is older than 2.18, which has no split, or is another version on another rank, and
// CommunicationError.
std::vector<std::unique_ptr<DataPlane>> make_nccl_planes(ControlPlane& world, Device& device,
                                                         std::span<const program::Group> groups,
                                                         const NcclOptions& options);

// Blocks of ncclMemAlloc, which communicators take as windows. They are given back after the planes are gone. It gives
// nullptr where NCCL (before 2.27) has no windows or gives no memory.
BlockSource nccl_blocks();

}  // namespace zeroplan::executor
