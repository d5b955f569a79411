#pragma once

#include "executor/communicator/control_plane.hpp"

namespace zeroplan::executor {

// What ranks tell each other between steps, so that all go on, save or end after the same one.
struct Control {
  int signal = 0;      // that asks for an end after this step; 0: none
  bool saves = false;  // it is time for a checkpoint
};

// Every rank's put together: a signal that came to one rank, and the time of one rank's clock, are for all.
Control agreed(const Control& own, ControlPlane& world);

}  // namespace zeroplan::executor
