#pragma once

#include <string_view>

#include "planner/program/builder.hpp"
#include "planner/program/unit.hpp"

namespace zeroplan::program {

// A matrix product's parameters: views of its unit's whole weights and whole gradients.
struct Linear {
  BufferId weight = kNoBuffer, bias = kNoBuffer;
  BufferId weight_gradient = kNoBuffer, bias_gradient = kNoBuffer;
  std::int64_t outputs = 0, inputs = 0;
};

// A norm's weight and bias, which lie side by side.
struct NormParameters {
  BufferId parameters = kNoBuffer, gradient = kNoBuffer;
  std::int64_t width = 0;
};

// Looks up tensors of one unit by name and makes views of them. What the unit does not have comes back empty.
class Parameters {
 public:
  Parameters(Builder& builder, const Unit& unit) : builder_(builder), unit_(unit) {}

  // `names` are tensors that follow one another in the unit and are multiplied as one, such as query, key and
  // value. Each is "<name>.weight" with an optional "<name>.bias"; a name the unit lacks is passed over.
  Linear linear(std::initializer_list<std::pair<std::string_view, std::string_view>> names);
  NormParameters norm(std::string_view weight, std::string_view bias);

 private:
  Builder& builder_;
  const Unit& unit_;
};

}  // namespace zeroplan::program
