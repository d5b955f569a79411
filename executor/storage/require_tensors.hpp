#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "executor/storage/tensor_file.hpp"
#include "planner/error.hpp"

namespace zeroplan::executor {

// What a set of files has: a tensor by name, or nullptr.
using TensorLookup = std::function<const TensorEntry*(std::string_view name)>;

// Adds a problem for each tensor that is missing or has another shape than expected, and for each of `present`
// that was not expected, of each kind at most ten and a count of the rest.
void compare_tensors(const std::string& source, std::span<const TensorEntry> expected,
                     const TensorLookup& find, std::span<const std::string> present, Problems& problems);

}  // namespace zeroplan::executor
