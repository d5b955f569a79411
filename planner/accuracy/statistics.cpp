#include "planner/accuracy/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "planner/percentile.hpp"

namespace zeroplan::accuracy {

ErrorStatistics error_statistics(const std::vector<double>& errors) {
  if (errors.empty()) return {};
  std::vector<double> absolute(errors.size());
  std::transform(errors.begin(), errors.end(), absolute.begin(),
                 [](double error) { return std::abs(error); });
  const auto count = static_cast<double>(errors.size());
  return {errors.size(), percentile(absolute, 0.5),
          std::accumulate(absolute.begin(), absolute.end(), 0.0) / count, percentile(absolute, 0.9),
          std::accumulate(errors.begin(), errors.end(), 0.0) / count};
}

double interval_error(double predicted, double low, double high) {
  if (predicted < low) return (predicted - low) / low;
  if (predicted > high) return (predicted - high) / high;
  return 0;
}

}  // namespace zeroplan::accuracy
