#include "planner/describe/text/quantity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>

#include "planner/error.hpp"

namespace zeroplan::describe {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kSmallest = std::numeric_limits<std::int64_t>::min();

// Exponents beyond this are cut to it: no text within our size limit has so many digits that it would matter.
constexpr std::int64_t kExponentLimit = 1'000'000'000;

// A decimal number as written: 0.digits x 10^point, without zeros in front of or behind the digits.
struct Decimal {
  bool negative = false;
  std::string digits;
  std::int64_t point = 0;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

[[noreturn]] void refuse(std::string_view text, const std::string& expected) {
  const bool octal = text.size() > 1 && text[0] == '0' && is_digit(text[1]);
  throw std::invalid_argument(fmt::format("found {}, expected {}{}", quoted(text), expected,
                                          octal ? " without a zero in front" : ""));
}

// Takes digits with '_' between them from the front of `text`. False where a '_' is not between digits.
bool take_digits(std::string_view& text, std::string& digits) {
  char previous = '\0';
  while (!text.empty() && (is_digit(text.front()) || text.front() == '_')) {
    const char c = text.front();
    if (c == '_' && !is_digit(previous)) return false;
    if (c != '_') digits += c;
    previous = c;
    text.remove_prefix(1);
  }
  return previous != '_';
}

// Takes e+12 from the front of `text`, where there is one.
bool take_exponent(std::string_view& text, std::int64_t& exponent) {
  if (text.empty() || (text.front() != 'e' && text.front() != 'E')) return true;
  text.remove_prefix(1);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || !is_digit(text.front())) return false;
  while (!text.empty() && is_digit(text.front())) {
    exponent = std::min(exponent * 10 + (text.front() - '0'), kExponentLimit);
    text.remove_prefix(1);
  }
  if (negative) exponent = -exponent;
  return true;
}

// Takes a decimal number from the front of `text`: sign, digits, fraction, exponent. Nothing where there is
// none, or where it starts with a zero that some readers take for octal.
std::optional<Decimal> take_decimal(std::string_view& text) {
  Decimal result;
  result.negative = text.starts_with('-');
  if (result.negative || text.starts_with('+')) text.remove_prefix(1);
  if (!take_digits(text, result.digits)) return std::nullopt;
  if (result.digits.size() > 1 && result.digits.front() == '0') return std::nullopt;
  result.point = static_cast<std::int64_t>(result.digits.size());
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (!take_digits(text, result.digits)) return std::nullopt;
  }
  if (result.digits.empty()) return std::nullopt;
  std::int64_t exponent = 0;
  if (!take_exponent(text, exponent)) return std::nullopt;

  const std::size_t first = std::min(result.digits.find_first_not_of('0'), result.digits.size());
  result.digits.erase(0, first);
  result.digits.erase(result.digits.find_last_not_of('0') + 1);
  result.point += exponent - static_cast<std::int64_t>(first);
  return result;
}

bool is_whole(const Decimal& decimal) {
  return decimal.digits.empty() || decimal.point >= static_cast<std::int64_t>(decimal.digits.size());
}

// The part before the decimal point, without the sign; nothing above 2^63 - 1.
std::optional<std::int64_t> whole_part(const Decimal& decimal) {
  if (decimal.digits.empty() || decimal.point <= 0) return 0;
  if (decimal.point > 19) return std::nullopt;
  std::int64_t result = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(decimal.point); ++i) {
    const std::int64_t digit = i < decimal.digits.size() ? decimal.digits[i] - '0' : 0;
    if (result > (kLargest - digit) / 10) return std::nullopt;
    result = result * 10 + digit;
  }
  return result;
}

// The part after the decimal point, 0 <= result < 1 but for rounding.
double fraction_part(const Decimal& decimal) {
  if (is_whole(decimal)) return 0;
  std::string text = "0.";
  if (decimal.point > 0) {
    text += decimal.digits.substr(static_cast<std::size_t>(decimal.point));
  } else {
    text += decimal.digits + fmt::format("e{}", decimal.point);
  }
  double result = 0;  // stays 0 below the smallest double
  std::from_chars(text.data(), text.data() + text.size(), result);
  return result;
}

std::string range(std::int64_t minimum, std::int64_t maximum) {
  if (minimum == kSmallest && maximum == kLargest) return "";
  if (maximum == kLargest) return fmt::format(" of at least {}", minimum);
  return fmt::format(" from {} to {}", minimum, maximum);
}

std::int64_t to_integer(std::string_view text, const std::optional<Decimal>& decimal, std::int64_t minimum,
                        std::int64_t maximum, const std::string& expected) {
  if (!decimal || !is_whole(*decimal)) refuse(text, expected);
  const bool signed_text = text.front() == '-' || text.front() == '+';
  if (signed_text && minimum >= 0) refuse(text, expected);
  const std::optional<std::int64_t> magnitude = whole_part(*decimal);
  if (!magnitude) refuse(text, expected);
  const std::int64_t value = decimal->negative ? -*magnitude : *magnitude;
  if (value < minimum || value > maximum) refuse(text, expected);
  return value;
}

struct ByteUnit {
  std::string_view name;
  Bytes bytes;
};

constexpr std::array<ByteUnit, 10> kByteUnits = {{
    {"", 1},
    {"B", 1},
    {"kB", 1'000},
    {"MB", 1'000'000},
    {"GB", 1'000'000'000},
    {"TB", 1'000'000'000'000},
    {"KiB", kKiB},
    {"MiB", kMiB},
    {"GiB", kGiB},
    {"TiB", kGiB << 10},
}};

constexpr std::string_view kBytesExpected =
    "a size in bytes with its unit: B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of "
    "1024)";

// The two spellings of what was meant by a bare "G", or by "gb".
[[noreturn]] void refuse_unit(std::string_view text, std::string_view number, std::string_view unit) {
  const bool letters =
      unit.size() == 1 || (unit.size() == 2 && (unit[1] == 'b' || unit[1] == 'B')) ||
      (unit.size() == 3 && (unit[1] == 'i' || unit[1] == 'I') && (unit[2] == 'b' || unit[2] == 'B'));
  constexpr std::string_view kPrefixes = "kKmMgGtT";
  const std::size_t prefix = unit.empty() ? std::string_view::npos : kPrefixes.find(unit.front());
  if (!letters || prefix == std::string_view::npos) refuse(text, std::string(kBytesExpected));
  const std::size_t power = prefix / 2;
  refuse(text, fmt::format("{0}{1} (1000^{3} bytes) or {0}{2} (1024^{3} bytes)", number,
                           kByteUnits[2 + power].name, kByteUnits[6 + power].name, power + 1));
}

}  // namespace

std::int64_t parse_integer(std::string_view text, std::int64_t minimum, std::int64_t maximum) {
  std::string_view rest = text;
  std::optional<Decimal> decimal = take_decimal(rest);
  if (!rest.empty()) decimal.reset();
  return to_integer(text, decimal, minimum, maximum, "a whole number" + range(minimum, maximum));
}

std::int64_t parse_count(std::string_view text, std::int64_t minimum, std::int64_t maximum) {
  std::string_view rest = text;
  std::optional<Decimal> decimal = take_decimal(rest);
  if (decimal && !rest.empty()) {
    constexpr std::string_view kSuffixes = "kMBT";
    const std::size_t suffix = kSuffixes.find(rest.front());
    if (rest.size() == 1 && suffix != std::string_view::npos) {
      decimal->point += 3 * (static_cast<std::int64_t>(suffix) + 1);
    } else {
      decimal.reset();
    }
  }
  return to_integer(text, decimal, minimum, maximum,
                    fmt::format("a count{} such as 125k, 340M, 7.5B or 1T", range(minimum, maximum)));
}

double parse_real(std::string_view text, double minimum, double maximum) {
  const auto expected = [&] {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const bool below = minimum > std::numeric_limits<double>::lowest();
    const bool above = maximum < std::numeric_limits<double>::max();
    if (below && above) return fmt::format("a finite number from {} to {}", minimum, maximum);
    if (below) return fmt::format("a finite number of at least {}", minimum);
    if (above && maximum > -kInfinity) return fmt::format("a finite number of at most {}", maximum);
    return std::string("a finite number");
  };
  std::string_view rest = text;
  const std::optional<Decimal> decimal = take_decimal(rest);
  if (!decimal || !rest.empty() || text.find('_') != std::string_view::npos) refuse(text, expected());
  double value = 0;
  if (!decimal->digits.empty()) {
    const std::string written =
        fmt::format("{}0.{}e{}", decimal->negative ? "-" : "", decimal->digits, decimal->point);
    const auto result = std::from_chars(written.data(), written.data() + written.size(), value);
    const bool too_large = result.ec == std::errc::result_out_of_range && decimal->point > 0;
    if (too_large) refuse(text, expected());
    if (result.ec != std::errc()) value = 0;
  }
  if (!std::isfinite(value) || value < minimum || value > maximum) refuse(text, expected());
  return value;
}

bool parse_boolean(std::string_view text) {
  for (const std::string_view yes : {"true", "True", "yes", "Yes", "on", "On"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"false", "False", "no", "No", "off", "Off"}) {
    if (text == no) return false;
  }
  refuse(text, "true or false");
}

Bytes parse_bytes(std::string_view text) {
  std::string_view unit = text;
  const std::optional<Decimal> decimal = take_decimal(unit);
  if (!decimal || !is_digit(text.front())) refuse(text, std::string(kBytesExpected));
  std::string_view number = text.substr(0, text.size() - unit.size());
  if (unit.size() > 1 && unit.front() == ' ') unit.remove_prefix(1);
  const auto* known = std::find_if(kByteUnits.begin(), kByteUnits.end(),
                                   [&](const ByteUnit& each) { return each.name == unit; });
  if (known == kByteUnits.end()) refuse_unit(text, number, unit);

  const std::optional<std::int64_t> whole = whole_part(*decimal);
  const auto part =
      static_cast<std::int64_t>(std::llround(fraction_part(*decimal) * static_cast<double>(known->bytes)));
  if (!whole || *whole > (kLargest - part) / known->bytes) {
    refuse(text, "a size of at most 9223372036854775807 bytes");
  }
  return *whole * known->bytes + part;
}

}  // namespace zeroplan::describe
