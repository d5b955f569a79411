#pragma once

#include <functional>
#include <stop_token>

#include "executor/communicator/control_plane.hpp"

namespace zeroplan::executor {

// Runs `work` on a thread of its own while the ranks of `world` keep meeting, and returns when it is done on
// all of them. So it may take longer than a rank waits for the others (a large file, a slow disk), and only a
// rank that is gone is missed. All ranks call it. What `work` throws is thrown here, on its own rank; when the
// ranks were ended in the meantime, it is asked to stop, awaited, and the reason of the end is thrown.
void while_meeting(ControlPlane& world, const std::function<void(std::stop_token)>& work);

}  // namespace zeroplan::executor
