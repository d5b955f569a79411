#pragma once

#include <stdexcept>

namespace zeroplan::executor {

// Memory or a kernel that the device does not have. Exit code 4 when it ends a run.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What this machine or this build of zeroplan does not have. Exit code 3.
class NotPossible : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Ranks out of step, lost or stopped. Exit code 4.
class CommunicationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace zeroplan::executor
