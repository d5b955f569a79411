#pragma once

#include "planner/found_machine.hpp"
#include "reports/data.hpp"

namespace zeroplan::reports {

// What was found of a machine's GPUs, as a device or node of the form zeroplan.hardware/1 (docs/hardware.md) that --hw takes
// as it is. What NVML does not tell, such as peak rates, is there with a null value, to be filled in. Requires a GPU whose
// memory is known; the first one stands for all. A device that is shipped is only named.
Data machine_description(const FoundMachine& machine);

}  // namespace zeroplan::reports
