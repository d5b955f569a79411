#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace zeroplan {

// One thing that is wrong with the input. Every field but `message` may be empty (line 0: not known).
//
//   models/mine.yaml:12: hidden: found "12k", expected a whole number from 1 to 1048576
//   --tp: found "3", expected a divisor of the 32 heads; nearest: 4
struct Problem {
  std::string source;   // file, option or argument
  int line = 0;         // 1-based
  std::string key;      // dotted path inside the file
  std::string message;  // value found, what was expected, nearest valid name

  std::string text() const;
};

// Bad input: exit code 2. Holds every problem found in one pass, at least one.
class ConfigurationError : public std::runtime_error {
 public:
  explicit ConfigurationError(std::vector<Problem> problems);
  explicit ConfigurationError(Problem problem);

  const std::vector<Problem>& problems() const { return problems_; }

 private:
  std::vector<Problem> problems_;
};

// Collects problems so that a user sees all of them at once.
class Problems {
 public:
  void add(Problem problem) { problems_.push_back(std::move(problem)); }
  void add(const ConfigurationError& error);
  bool empty() const { return problems_.empty(); }
  const std::vector<Problem>& list() const { return problems_; }

  // Throws ConfigurationError when there is at least one.
  void throw_if_any() const;

 private:
  std::vector<Problem> problems_;
};

// The candidate that is closest to `word` by edit distance, or empty when none is near enough to be a slip of
// the fingers (distance above a third of the longer word). Case, '-' and '_' do not count.
std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);

// `text` with unprintable bytes escaped and cut at 60 characters, between double quotes: how messages show a
// value.
std::string quoted(std::string_view text);

}  // namespace zeroplan
