#pragma once

#include <string>
#include <string_view>

#include "planner/predict/prediction.hpp"

// What the planner says about one plan, asked the way a user asks.
namespace zeroplan::test {

// `words`: "dp=64 zero=2", keys as on the command line.
describe::ResolvedPlan planned(const std::string& model, const std::string& words,
                               const std::string& hardware);
predict::Prediction predicted(const std::string& model, const std::string& words,
                              const std::string& hardware = "v100-32gb");

// The same on devices with exactly `capacity_gib` for a program, whatever the preset says.
predict::Prediction predicted_in(double capacity_gib, const std::string& model, const std::string& words,
                                 const std::string& hardware);

// Device bytes of a category: held through the step, and at the peak.
double held_bytes(const predict::Prediction& prediction, program::Category category);
double peak_bytes(const predict::Prediction& prediction, program::Category category);

// Device bytes of all buffers called `name` that are alive at the peak.
double buffer_bytes(const predict::Prediction& prediction, std::string_view name);

// Sums over the ledger: elements of whole vectors, and bytes that a rank sends.
double moved_elements(const predict::Prediction& prediction, program::GroupKind group,
                      program::Op collective);
double sent_bytes(const predict::Prediction& prediction, program::Op collective, program::Phase phase);

constexpr double gb(double bytes) { return bytes / kGB; }
constexpr double gib(double bytes) { return bytes / static_cast<double>(kGiB); }
constexpr double mib(double bytes) { return bytes / static_cast<double>(kMiB); }

}  // namespace zeroplan::test
