#pragma once

#include <cstddef>
#include <vector>

namespace zeroplan::accuracy {

// (predicted - measured) / measured of several runs.
struct ErrorStatistics {
  std::size_t runs = 0;
  double median = 0;  // of the absolute errors, as the next two
  double mean = 0;
  double percentile_90 = 0;
  double bias = 0;  // mean of the signed errors
};
ErrorStatistics error_statistics(const std::vector<double>& errors);

// The relative error of a prediction against an interval: 0 inside it, else against the nearer end. Requires
// 0 < low <= high.
double interval_error(double predicted, double low, double high);

}  // namespace zeroplan::accuracy
