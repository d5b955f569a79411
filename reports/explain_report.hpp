#pragma once

#include <string>

#include "reports/explanation.hpp"
#include "reports/fit_report.hpp"
#include "reports/report.hpp"

namespace zeroplan::reports {

// The keys that can be explained.
Report explain_keys_report(std::string_view version);

// One key of a fit's answer. Requires a name of explain_keys(), with a value (why_not_known).
Report explain_report(const std::string& key, const FitAnswer& answer);

}  // namespace zeroplan::reports
