#include "planner/accuracy/words.hpp"

#include <algorithm>
#include <cctype>

namespace zeroplan::accuracy {

bool mentions(std::string_view text, std::string_view part) {
  const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

bool is_before(std::string_view date, std::string_view limit) {
  constexpr std::size_t kYear = 4;
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  if (date.size() < kYear || !std::all_of(date.begin(), date.begin() + kYear, is_digit)) return false;
  const bool has_month = date.size() >= limit.size() && date[kYear] == '-';
  const std::size_t stated = has_month ? limit.size() : kYear;
  return date.substr(0, stated) < limit.substr(0, stated);
}

}  // namespace zeroplan::accuracy
