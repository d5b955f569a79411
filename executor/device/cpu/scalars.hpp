#pragma once

#include "planner/program/step_program.hpp"

namespace zeroplan::executor::cpu {

// Fields of the `scalars` buffer behind those that the step program knows.

// The loss scale that this step's gradients carry. scale_update puts it here before it sets the next step's,
// because the gradients are divided by it only afterwards.
inline constexpr auto kGradientScale = static_cast<program::Scalar>(program::kScalars - 1);

}  // namespace zeroplan::executor::cpu
