#pragma once

#include <vector>

namespace zeroplan {

// The value below which `fraction` of the values lie: linear between the two nearest of the sorted values, of
// which the first is at 0 and the last at 1. Requires at least one value and 0 <= fraction <= 1.
double percentile(std::vector<double> values, double fraction);

}  // namespace zeroplan
