#pragma once

#include <string_view>

#include "planner/found_machine.hpp"
#include "reports/report.hpp"

namespace zeroplan::reports {

// Schema zeroplan.detected/1: the host, the driver, the GPUs with the description that stands for each, how they are linked,
// the network interfaces, and what to give to --hw.
Report detected_report(std::string_view version, const FoundMachine& machine);

// "550.54.15, for CUDA up to 12.4"; requires a driver that works.
std::string driver_text(const FoundDriver& driver);

// CUDA's way of counting as people write it: 12040 is "12.4".
std::string cuda_version_text(std::int64_t version);

}  // namespace zeroplan::reports
