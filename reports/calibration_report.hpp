#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/describe/machine/cluster.hpp"
#include "reports/report.hpp"
#include "reports/validation_report.hpp"

namespace zeroplan::reports {

// A machine as it was measured: a device with figures, tables of collectives and of kernels.
struct CalibrationAnswer {
  std::string_view version;
  const describe::Device& device;
  const RunEnvironment& environment;
};

// The data is a description of a machine (docs/hardware.md), which --hw takes as YAML or JSON; the blocks are
// a summary.
Report calibration_report(const CalibrationAnswer& answer);

}  // namespace zeroplan::reports
