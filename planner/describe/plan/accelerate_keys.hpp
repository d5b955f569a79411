#pragma once

#include <span>
#include <string_view>

#include "planner/describe/text/known_keys.hpp"

// What becomes of each key of a file that `accelerate config` writes. tests/reference/readers/keys.csv holds the
// keys that accelerate declares; a test holds the tables against it.
namespace zeroplan::describe {

std::span<const KeyTable> accelerate_tables();

// The table of one section: "" is the top of the file.
std::span<const KnownKey> accelerate_keys(std::string_view section);

}  // namespace zeroplan::describe
