#pragma once

#include <string_view>
#include <vector>

#include "planner/describe/machine/cluster.hpp"
#include "reports/report.hpp"

namespace zeroplan::reports {

// Schema zeroplan.hardware_list/1: one row per preset.
Report hardware_list_report(std::string_view version, const std::vector<describe::HardwareName>& names);

// Schema zeroplan.machine/1: every figure of a device, its node and cluster, with its source.
Report hardware_report(std::string_view version, const describe::Cluster& cluster);

}  // namespace zeroplan::reports
