#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/predict/prediction.hpp"
#include "reports/report.hpp"

// A verdict in words and as data; what keeps it from being said goes with it.
namespace zeroplan::reports {

// For a column that is headed "fits": yes, tightly, no, cannot say. Requires the name of a verdict.
std::string verdict_word(std::string_view name);

// "It fits: peak 44.10 of 79.21 GiB, 35.11 GiB (44 %) free."
std::string verdict_sentence(const predict::Prediction& prediction);

// The sentence, and how to give each thing that is missing.
void add_verdict(std::vector<Block>& blocks, const predict::Prediction& prediction);

Data missing_data(const std::vector<predict::Missing>& missing);

}  // namespace zeroplan::reports
