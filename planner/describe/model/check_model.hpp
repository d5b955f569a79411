#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/describe/model/model.hpp"

// What every reader of models checks, so that a shape is refused for the same reasons wherever it comes from.
namespace zeroplan::describe {

// Largest values taken: ten times and more what anybody has trained, and small enough that no product
// overflows.
inline constexpr std::int64_t kMaxHidden = 1048576;
inline constexpr std::int64_t kMaxLayers = 100000;
inline constexpr std::int64_t kMaxHeads = 65536;
inline constexpr std::int64_t kMaxHeadDim = 65536;
inline constexpr std::int64_t kMaxFfn = 4194304;
inline constexpr std::int64_t kMaxVocabulary = 16777216;
inline constexpr std::int64_t kMaxSequence = 1073741824;
inline constexpr std::int64_t kMaxPositionRows = 16777216;
inline constexpr std::int64_t kMaxExperts = 65536;
inline constexpr std::int64_t kMaxParameters = 1000000000000000;
inline constexpr std::size_t kMaxExtra = 64;
inline constexpr double kMaxRotaryBase = 1e12;
inline constexpr double kMaxRotaryFactor = 1e6;
inline constexpr double kMaxSoftCap = 1e6;
inline constexpr double kLeastPositive = 1e-9;  // of numbers that must not be 0

// Layers n - 1, 2 n - 1, ... of `layers`: every n-th one.
std::vector<std::int32_t> every_layer(std::int64_t n, std::int64_t layers);

// A rule between fields that does not hold; `key` as in our YAML, dotted.
struct BrokenRule {
  std::string key;
  std::string message;
};

// All rules between the fields. A field that is 0 because it was missing or wrong is skipped: its own problem
// has been entered by the reader.
std::vector<BrokenRule> check_model(const Model& model);

}  // namespace zeroplan::describe
