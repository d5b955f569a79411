#pragma once

#include "executor/device/cuda/launch.hpp"

// One function for each instruction; it checks what its kernels cannot have (DeviceError) and starts them.
// planner/instructions/table.hpp says what each computes, executor/device/cpu in which layouts.
namespace zeroplan::executor::cuda {

// kernels/attention_forward.cu, attention_backward.cu
void attention_forward(const Kernel& kernel, const Launcher& launcher);
void attention_row_dot(const Kernel& kernel, const Launcher& launcher);
void attention_backward(const Kernel& kernel, const Launcher& launcher);

// kernels/materialized_attention.cu
void attention_scores(const Kernel& kernel, const Launcher& launcher);
void softmax_forward(const Kernel& kernel, const Launcher& launcher);
void attention_values(const Kernel& kernel, const Launcher& launcher);
void attention_values_backward(const Kernel& kernel, const Launcher& launcher);
void softmax_backward(const Kernel& kernel, const Launcher& launcher);
void attention_scores_backward(const Kernel& kernel, const Launcher& launcher);

}  // namespace zeroplan::executor::cuda
