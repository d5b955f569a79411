#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <tuple>

#include "executor/device/device.hpp"
#include "planner/instructions/table.hpp"

// Fields of the `scalars` buffer behind those that the step program knows. Kernels read what differs from step to step
// there, so that a step is the same list of launches each time.
namespace zeroplan::executor {

// Written before a step, in one piece.
inline constexpr Elements kFirstStepScalar = program::kScalars - 5;
inline constexpr auto kLearningRate = static_cast<program::Scalar>(kFirstStepScalar);
inline constexpr auto kStepSize = static_cast<program::Scalar>(kFirstStepScalar + 1);  // rate / (1 - beta1^t)
// 1 / sqrt(1 - beta2^t)
inline constexpr auto kVarianceCorrection = static_cast<program::Scalar>(kFirstStepScalar + 2);
inline constexpr auto kStepNumber = static_cast<program::Scalar>(kFirstStepScalar + 3);  // StepSettings::step
static_assert(kFirstStepScalar > static_cast<Elements>(program::Scalar::squared_norm));

// The loss scale that this step's gradients carry. scale_update puts it here before it sets the next step's,
// because the gradients are divided by it only afterwards.
inline constexpr auto kGradientScale = static_cast<program::Scalar>(program::kScalars - 1);

using StepScalars = std::array<float, 4>;
// Of the buffer: what no kernel writes.
inline Tensor step_part_of(const Tensor& scalars) {
  return {scalars.data + static_cast<std::size_t>(kFirstStepScalar) * sizeof(float), scalars.type,
          std::tuple_size_v<StepScalars>};
}

inline bool draws_mask(const Kernel& kernel) {
  const std::size_t mask = program::drawn_mask(kernel.op);
  return mask < kernel.operands.size() && static_cast<bool>(kernel.operands[mask]);
}

// Whether an instruction reads them: the update, and what draws a mask.
inline bool reads_step(const Kernel& kernel) {
  return (draws_mask(kernel) || kernel.op == program::Op::optimizer_update) &&
         static_cast<bool>(kernel.scalars);
}

// From kFirstStepScalar on; the corrections are Adam's (arXiv 1412.6980, Algorithm 1).
inline StepScalars step_scalars_of(const StepSettings& settings) {
  const auto step = static_cast<double>(settings.step);
  const double rate = settings.learning_rate;
  return {settings.learning_rate,
          static_cast<float>(rate / (1.0 - std::pow(static_cast<double>(settings.beta1), step))),
          static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(static_cast<double>(settings.beta2), step))),
          static_cast<float>(settings.step)};
}

}  // namespace zeroplan::executor
