#pragma once

#include <span>
#include <string_view>

#include "planner/describe/text/known_keys.hpp"

// What becomes of each key of a DeepSpeed file. tests/reference/readers/keys.csv holds the keys that DeepSpeed
// declares; a test holds the tables against it.
namespace zeroplan::describe {

std::span<const KeyTable> deepspeed_tables();

// The table of one section ("" is the top of the file, "zero_optimization.offload_param" a nested one).
std::span<const KnownKey> deepspeed_keys(std::string_view section);

}  // namespace zeroplan::describe
