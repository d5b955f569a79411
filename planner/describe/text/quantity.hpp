#pragma once

#include <cstdint>
#include <string_view>

#include "planner/units.hpp"

// Numbers as people write them. All functions take the whole text (surrounding spaces are refused) and throw
// std::invalid_argument with a message that says what was expected; callers add where it stood.
namespace zeroplan::describe {

// A whole number in decimal: digits, optionally with '_' between digits, or a float form that is whole
// ("5e8", "1.5e9"). Refused: leading zeros ("012" is octal to some readers), signs where minimum is not
// negative, fractions, NaN, infinities, values outside [minimum, maximum].
std::int64_t parse_integer(std::string_view text, std::int64_t minimum, std::int64_t maximum);

// A finite decimal number within [minimum, maximum]. Refused: NaN, infinities, hexadecimal, overflow (1e400).
double parse_real(std::string_view text, double minimum, double maximum);

// true/false, yes/no, on/off in lower or title case.
bool parse_boolean(std::string_view text);

// A count with an optional decimal suffix: "7.5B", "340M", "125k", "1T", "2.851e9", "6_738_415_616". B = 1e9,
// T = 1e12. Must come out whole.
std::int64_t parse_count(std::string_view text, std::int64_t minimum, std::int64_t maximum);

// Bytes with a unit: B, kB, MB, GB, TB (powers of 1000) and KiB, MiB, GiB, TiB (powers of 1024), with or
// without one space: "32GB", "31.75 GiB", "500MB". A bare number is bytes. A bare "G", "M", "K" or "T" is
// refused with the two spellings, as are "Gb" and "gb". The result is rounded to a whole byte; negative
// values are refused.
Bytes parse_bytes(std::string_view text);

}  // namespace zeroplan::describe
