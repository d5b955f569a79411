#pragma once

#include <string>

#include "executor/modules.hpp"

namespace zeroplan::executor::cpu {

// pin_to_share() of executor/modules.hpp; empty also where this was built without hwloc.
std::string pin_to_share(const HostShare& share);

}  // namespace zeroplan::executor::cpu
