#pragma once

#include <string_view>
#include <vector>

#include "reports/findings.hpp"
#include "reports/report.hpp"

namespace zeroplan::reports {

// Schema zeroplan.doctor/1: one row per finding, and how to mend what is not in order.
Report doctor_report(std::string_view version, RunsOn device, const std::vector<Finding>& findings);

}  // namespace zeroplan::reports
