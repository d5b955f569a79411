#pragma once

#include <string>
#include <string_view>

#include "reports/explanation.hpp"

// The keys of time and speed, for explain().
namespace zeroplan::reports {

bool is_time_or_speed(std::string_view key);

// Requires one of the keys, with a value.
Explanation explain_time_or_speed(std::string_view key, const PredictedPlan& input);

// Why one of the keys has no value, as half a sentence; empty where it has one.
std::string why_no_time_or_speed(std::string_view key, const PredictedPlan& input);

}  // namespace zeroplan::reports
