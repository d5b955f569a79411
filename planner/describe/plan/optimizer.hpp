#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "planner/describe/text/document.hpp"
#include "planner/described.hpp"
#include "planner/units.hpp"

namespace zeroplan::describe {

// One part of an optimizer's state, as bytes for each parameter that a rank updates.
struct OptimizerPart {
  std::string name;  // "momentum"
  Bytes bytes_per_parameter = 0;
  // Quantised states keep `block_bytes` of scale for every `block_elements` parameters; 0: none.
  Elements block_elements = 0;
  Bytes block_bytes = 0;
  // Factored second moments (Adafactor): bytes_per_parameter for each row and each column of a matrix instead
  // of each of its elements; a vector is kept whole. A flat partition of a unit has no rows and columns, so
  // under ZeRO this part is not partitioned.
  bool factored = false;
};

inline constexpr std::size_t kMaxOptimizerParts = 4;

// An optimizer as data: planner/describe/plan/optimizers/*.yaml.
struct Optimizer {
  std::string name;
  std::string title;
  std::string source;
  // At most kMaxOptimizerParts. The fp32 master copy of mixed precision is not among them.
  std::vector<OptimizerPart> parts;
};

// Reads an optimizer (docs/engines.md), strictly. Throws ConfigurationError.
Optimizer read_optimizer_yaml(const Document& document);

// By name or alias, in any case, with or without '-' and '_'; throws ConfigurationError with the nearest
// name.
Described<Optimizer> find_optimizer(const std::string& name);
// Names of the shipped optimizers, sorted.
std::vector<std::string> optimizer_names();

}  // namespace zeroplan::describe
