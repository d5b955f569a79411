#include "planner/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "planner/utf8.hpp"

namespace zeroplan {
namespace {

constexpr std::size_t kShownCharacters = 60;
constexpr std::size_t kShownPathCharacters = 300;
constexpr std::size_t kShownMessageCharacters = 4000;

std::vector<Problem> at_least_one(std::vector<Problem> problems) {
  if (problems.empty()) problems.push_back({"", 0, "", "the input is not valid"});
  return problems;
}

std::string joined(const std::vector<Problem>& problems) {
  std::string result;
  for (const Problem& problem : problems) {
    if (!result.empty()) result += '\n';
    result += problem.text();
  }
  return result;
}

std::string comparable(std::string_view name) {
  std::string result;
  for (const char c : name) {
    if (c != '-' && c != '_') result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

// Edits are one letter put in, left out or changed, or two neighbours swapped (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> previous(b.size() + 1);
  std::vector<std::size_t> current(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({change, previous[j] + 1, current[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        current[j] = std::min(current[j], before[j - 2] + 1);
      }
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

}  // namespace

std::string Problem::text() const {
  std::string result = printable(source, kShownPathCharacters);
  if (line > 0) result += fmt::format("{}{}", result.empty() ? "line " : ":", line);
  for (const std::string& part :
       {printable(key, kShownPathCharacters), printable(message, kShownMessageCharacters)}) {
    if (part.empty()) continue;
    if (!result.empty()) result += ": ";
    result += part;
  }
  return result;
}

// The list is copied into the text before it is moved into place: the base is initialised first.
ConfigurationError::ConfigurationError(std::vector<Problem> problems)
    : std::runtime_error(joined(at_least_one(problems))), problems_(at_least_one(std::move(problems))) {}

ConfigurationError::ConfigurationError(Problem problem)
    : ConfigurationError(std::vector<Problem>{std::move(problem)}) {}

void Problems::add(const ConfigurationError& error) {
  problems_.insert(problems_.end(), error.problems().begin(), error.problems().end());
}

void Problems::throw_if_any() const {
  if (!problems_.empty()) throw ConfigurationError(problems_);
}

std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string wanted = comparable(word);
  std::string nearest;
  std::size_t nearest_distance = 0;
  for (const std::string& candidate : candidates) {
    const std::string name = comparable(candidate);
    const std::size_t shorter = std::min(wanted.size(), name.size());
    const std::size_t longer = std::max(wanted.size(), name.size());
    // The distance is at least the difference in length: a word of megabytes is never compared letter by
    // letter.
    if (shorter == 0 || (longer - shorter) * 3 > longer) continue;
    const std::size_t distance = edit_distance(wanted, name);
    if (distance * 3 > longer) continue;
    if (nearest.empty() || distance < nearest_distance) {
      nearest = candidate;
      nearest_distance = distance;
    }
  }
  return nearest;
}

std::string quoted(std::string_view text) { return fmt::format("\"{}\"", printable(text, kShownCharacters)); }

}  // namespace zeroplan
