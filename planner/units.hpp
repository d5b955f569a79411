#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <type_traits>

// Sizes and counts of the whole project. 64 bits everywhere: one step of a trillion-parameter model moves
// more than 2^32 of anything. Decimal and binary prefixes are never mixed up: GB is 1e9 bytes and GiB is
// 2^30.
namespace zeroplan {

using Bytes = std::int64_t;
using Elements = std::int64_t;
using Flops = double;  // operations of one step pass 2^63 on large runs; exact up to 2^53

inline constexpr Bytes kKiB = Bytes{1} << 10;
inline constexpr Bytes kMiB = Bytes{1} << 20;
inline constexpr Bytes kGiB = Bytes{1} << 30;
inline constexpr double kGB = 1e9;

// Rounds up. Requires a >= 0 and b > 0.
constexpr std::int64_t div_ceil(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// The smallest multiple of `multiple` that is not below `value`.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return div_ceil(value, multiple) * multiple;
}

// Divides where the remainder must be zero; throws std::logic_error where it is not (a check was forgotten).
constexpr std::int64_t div_exact(std::int64_t a, std::int64_t b) {
  if (b == 0 || a % b != 0) throw std::logic_error("div_exact: not a multiple");
  return a / b;
}

// A narrowing conversion that throws std::logic_error instead of losing bits.
template <class To, class From>
constexpr To narrow(From value) {
  const To result = static_cast<To>(value);
  if (static_cast<From>(result) != value || ((result < To{}) != (value < From{}))) {
    throw std::logic_error("narrow: value does not fit");
  }
  return result;
}

}  // namespace zeroplan
