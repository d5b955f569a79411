#pragma once

#include <type_traits>

#include "executor/device/cpu/workers.hpp"
#include "executor/device/device.hpp"

// An instruction's function in the form that all of them have.
namespace zeroplan::executor::cpu {

// A kernel takes what it needs of its settings and its threads.
template <auto kernel_function>
void call(const Kernel& kernel, Workers& workers) {
  constexpr auto kFunction = kernel_function;
  using Type = decltype(kernel_function);
  static const StepSettings defaults;
  const StepSettings& settings = kernel.settings != nullptr ? *kernel.settings : defaults;
  if constexpr (std::is_invocable_v<Type, const Kernel&, const StepSettings&, Workers&>) {
    kFunction(kernel, settings, workers);
  } else if constexpr (std::is_invocable_v<Type, const Kernel&, Workers&>) {
    (void)settings;
    kFunction(kernel, workers);
  } else {
    kFunction(kernel, settings);
  }
}

}  // namespace zeroplan::executor::cpu
