#include "planner/accuracy/mentions.hpp"

#include <algorithm>
#include <cctype>

namespace zeroplan::accuracy {

bool mentions(std::string_view text, std::string_view part) {
  const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

}  // namespace zeroplan::accuracy
