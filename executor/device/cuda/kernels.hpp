#pragma once

#include "executor/device/cuda/launch.hpp"

// One function for each instruction; it checks what its kernels cannot have (DeviceError) and starts them.
// planner/instructions/table.hpp says what each computes, executor/device/cpu in which layouts.
namespace zeroplan::executor::cuda {

// kernels/data_movement.cu; copy also from and to pinned memory of the host
void fill_zero(const Kernel& kernel, const Launcher& launcher);
void copy(const Kernel& kernel, const Launcher& launcher);
void accumulate(const Kernel& kernel, const Launcher& launcher);

// kernels/embedding.cu
void embedding_forward(const Kernel& kernel, const Launcher& launcher);
void embedding_backward(const Kernel& kernel, const Launcher& launcher);

// kernels/norm.cu, norm_backward.cu
void norm_forward(const Kernel& kernel, const Launcher& launcher);
void norm_backward(const Kernel& kernel, const Launcher& launcher);

// kernels/rotary.cu
void rotary_forward(const Kernel& kernel, const Launcher& launcher);
void rotary_backward(const Kernel& kernel, const Launcher& launcher);

// kernels/activation.cu, residual.cu
void activation_forward(const Kernel& kernel, const Launcher& launcher);
void activation_backward(const Kernel& kernel, const Launcher& launcher);
void residual_add(const Kernel& kernel, const Launcher& launcher);
// Both in one kernel with the same bits, where the norm is of the sum. False, and nothing starts, where it is not, or its
// rows are too wide or take no 16-byte accesses.
bool residual_add_and_norm(const Kernel& add, const Kernel& normalize, const Launcher& launcher);

// kernels/dropout.cu
void dropout_forward(const Kernel& kernel, const Launcher& launcher);
void dropout_backward(const Kernel& kernel, const Launcher& launcher);
void residual_backward(const Kernel& kernel, const Launcher& launcher);

// kernels/cross_entropy.cu
void cross_entropy_maximum(const Kernel& kernel, const Launcher& launcher);
void cross_entropy_exponent(const Kernel& kernel, const Launcher& launcher);
void cross_entropy_loss(const Kernel& kernel, const Launcher& launcher);
void cross_entropy_backward(const Kernel& kernel, const Launcher& launcher);

// kernels/step.cu, optimizer.cu
void gradient_norm(const Kernel& kernel, const Launcher& launcher);
void gradient_to_fp32(const Kernel& kernel, const Launcher& launcher);
void scale_update(const Kernel& kernel, const Launcher& launcher);
void optimizer_update(const Kernel& kernel, const Launcher& launcher);

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
