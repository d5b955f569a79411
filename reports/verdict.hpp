#pragma once

#include <string>
#include <vector>

#include "planner/predict/prediction.hpp"
#include "reports/report.hpp"

// A verdict in words and as data; what keeps it from being said goes with it.
namespace zeroplan::reports {

// For a column that is headed "fits": yes, tightly, no, cannot say.
std::string verdict_word(predict::Verdict verdict);

// "It fits: peak 44.10 of 79.21 GiB, 35.11 GiB (44 %) free."
std::string verdict_sentence(const predict::Prediction& prediction);

// The sentence, and how to give each thing that is missing.
void add_verdict(std::vector<Block>& blocks, const predict::Prediction& prediction);

// `fits` (null where it cannot be said), `verdict`, `verdict_reason` and `missing`.
void set_verdict(Data& into, const predict::Prediction& prediction);

Data missing_data(const std::vector<predict::Missing>& missing);

}  // namespace zeroplan::reports
