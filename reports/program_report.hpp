#pragma once

#include "reports/fit_report.hpp"
#include "reports/report.hpp"

namespace zeroplan::reports {

// The step program of a fit's answer, for a reader: buffers, and instructions with their streams, operands and sizes,
// what each waits for on other streams and how long ago that was.
Report program_report(const FitAnswer& answer);

}  // namespace zeroplan::reports
