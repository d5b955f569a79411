#pragma once

#include <algorithm>
#include <string>

#include "planner/describe/plan/plan.hpp"

namespace zeroplan::testing {

// Everything that is wrong, one problem a line; empty when nothing is.
template <class Action>
std::string problems_of(const Action& action) {
  try {
    action();
  } catch (const ConfigurationError& error) {
    std::string text;
    for (const Problem& problem : error.problems()) text += problem.text() + "\n";
    return text;
  }
  return "";
}

inline describe::Value scalar(const std::string& text) {
  describe::Value value;
  value.kind = describe::Value::Kind::scalar;
  value.text = text;
  return value;
}

// Options from "tp=2 zero=3", each as its command line option would give it.
inline describe::PlanOptions options_of(const std::string& words) {
  describe::PlanOptions options;
  Problems problems;
  std::size_t start = 0;
  while (start < words.size()) {
    const std::size_t end = std::min(words.find(' ', start), words.size());
    const std::string word = words.substr(start, end - start);
    const std::size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    describe::set_plan_option(options, key, scalar(word.substr(equals + 1)), describe::option_name(key),
                              problems);
    start = end + 1;
  }
  problems.throw_if_any();
  return options;
}

inline describe::ResolvedPlan resolved(const std::string& words, const std::string& model,
                                       const std::string& hardware) {
  return describe::resolve_plan(options_of(words), describe::resolve_model(model), hardware);
}

inline std::string refusal(const std::string& words, const std::string& model, const std::string& hardware) {
  return problems_of([&] { resolved(words, model, hardware); });
}

// The value assumed for `key`, or "" where nothing was.
inline std::string assumed(const describe::ResolvedPlan& plan, const std::string& key) {
  for (const describe::Assumption& assumption : plan.assumptions) {
    if (assumption.key == key) return assumption.value;
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace zeroplan::testing
