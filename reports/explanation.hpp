#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reports/figures.hpp"

// One number of an answer, taken apart into what it is the sum of. The terms are read from the step program;
// no formula is kept here a second time.
namespace zeroplan::reports {

struct Term {
  std::string name;
  std::string arithmetic;  // "48 x 30,740,800 x 2 B"
  double value = 0;
  std::string source = {};  // of a figure that is not read from the program
};

struct Explanation {
  std::string formula;      // in words and symbols
  std::vector<Term> terms;  // their sum is the value
  std::string source;       // paper and section, or where it is documented
};

struct ExplainKey {
  std::string
      name;  // of a figure (reports/figures.hpp), or "parameters" and "active_parameters" of the model
  std::string unit;
  std::string what;
};
const std::vector<ExplainKey>& explain_keys();

// Why a key has no value here, as half a sentence; empty where it has one. Requires a name of explain_keys().
std::string why_not_known(std::string_view key, const PredictedPlan& input);

// Requires a name of explain_keys(), with a value.
Explanation explain(std::string_view key, const PredictedPlan& input);

}  // namespace zeroplan::reports
