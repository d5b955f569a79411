#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace zeroplan::describe {

// "2 or 4": the values nearest to `value` below and above it, from 1 to `limit`, that `valid` accepts; "none"
// where there is none. Looks at every value in between, so `limit` should be a number of heads or of devices.
template <class Valid>
std::string nearest_values(std::int64_t value, std::int64_t limit, const Valid& valid) {
  std::int64_t below = value < limit ? value - 1 : limit;
  while (below >= 1 && !valid(below)) --below;
  std::int64_t above = value + 1;
  while (above <= limit && !valid(above)) ++above;
  const bool has_above = value < limit && above <= limit;
  if (below >= 1 && has_above) return fmt::format("{} or {}", below, above);
  if (below >= 1) return std::to_string(below);
  return has_above ? std::to_string(above) : "none";
}

// "384 or 416": the multiples of `step` around `value`.
inline std::string nearest_multiples(std::int64_t value, std::int64_t step) {
  const std::int64_t below = value / step * step;
  if (below == 0) return std::to_string(step);
  return fmt::format("{} or {}", below, below + step);
}

}  // namespace zeroplan::describe
