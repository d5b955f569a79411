#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "planner/describe/text/document.hpp"
#include "planner/error.hpp"

// What every reader promises about bad input, whatever the bytes: a ConfigurationError with one line for each
// problem and nothing else. Any other exception ends the fuzz target, which is a finding; so does a broken
// promise.
namespace zeroplan::fuzz {

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline void require(bool promise) {
  if (!promise) std::abort();
}

inline void check_problems(const ConfigurationError& error) {
  require(!error.problems().empty());
  for (const Problem& problem : error.problems()) {
    require(!problem.message.empty());
    require(problem.line >= 0);
    for (const char c : problem.text()) require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F);
  }
}

template <class Read>
void refuses_cleanly(Read&& read) {
  try {
    read();
  } catch (const ConfigurationError& error) {
    check_problems(error);
  }
}

// Readers of descriptions take both formats: text that starts like JSON is read as JSON.
inline describe::Document parse(std::string_view text) {
  return text.starts_with('{') ? describe::parse_json(text, "fuzz.json")
                               : describe::parse_yaml(text, "fuzz.yaml");
}

}  // namespace zeroplan::fuzz
