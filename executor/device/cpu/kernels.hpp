#pragma once

#include "executor/device/cpu/workers.hpp"
#include "executor/device/device.hpp"

// One function per instruction, or per instructions that differ in a type or a sign.
// planner/instructions/table.hpp says what each computes; cpu_device.hpp the layouts. All throw DeviceError
// on operands that are missing, too small or of a wrong type.
namespace zeroplan::executor::cpu {

// data_movement.cpp
void fill_zero(const Kernel& kernel, Workers& workers);
void copy(const Kernel& kernel, Workers& workers);
void accumulate(const Kernel& kernel, Workers& workers);

// matmul.cpp
void matmul(const Kernel& kernel, Workers& workers);
void matmul_input_gradient(const Kernel& kernel, Workers& workers);
void matmul_weight_gradient(const Kernel& kernel, Workers& workers);

// norm.cpp
void norm_forward(const Kernel& kernel, const StepSettings& settings, Workers& workers);
void norm_backward(const Kernel& kernel, const StepSettings& settings, Workers& workers);

// embedding.cpp
void embedding_forward(const Kernel& kernel, const StepSettings& settings, Workers& workers);
void embedding_backward(const Kernel& kernel, const StepSettings& settings, Workers& workers);

// rotary.cpp
void rotary_forward(const Kernel& kernel, const StepSettings& settings, Workers& workers);
void rotary_backward(const Kernel& kernel, const StepSettings& settings, Workers& workers);

// activation.cpp
void activation_forward(const Kernel& kernel, Workers& workers);
void activation_backward(const Kernel& kernel, Workers& workers);
void residual_add(const Kernel& kernel, const StepSettings& settings, Workers& workers);

// dropout.cpp
void dropout_forward(const Kernel& kernel, const StepSettings& settings, Workers& workers);
void dropout_backward(const Kernel& kernel, const StepSettings& settings, Workers& workers);
void residual_backward(const Kernel& kernel, const StepSettings& settings, Workers& workers);
// Draws the mask of elements [begin, begin + count), and drops `values` by it.
void drop_drawn(const Kernel& kernel, const StepSettings& settings, const Tensor& mask, Elements begin,
                Elements count, const float* from, float* to);

// attention.cpp
void attention_forward(const Kernel& kernel, const StepSettings& settings, Workers& workers);
void attention_row_dot(const Kernel& kernel, const StepSettings& settings, Workers& workers);
void attention_backward(const Kernel& kernel, const StepSettings& settings, Workers& workers);

// materialized_attention.cpp
void attention_scores(const Kernel& kernel, const StepSettings& settings, Workers& workers);
void softmax_forward(const Kernel& kernel, Workers& workers);
void attention_values(const Kernel& kernel, const StepSettings& settings, Workers& workers);
void attention_values_backward(const Kernel& kernel, const StepSettings& settings, Workers& workers);
void softmax_backward(const Kernel& kernel, Workers& workers);
void attention_scores_backward(const Kernel& kernel, const StepSettings& settings, Workers& workers);

// cross_entropy.cpp
void cross_entropy_maximum(const Kernel& kernel, const StepSettings& settings, Workers& workers);
void cross_entropy_exponent(const Kernel& kernel, Workers& workers);
void cross_entropy_loss(const Kernel& kernel, const StepSettings& settings);
void cross_entropy_backward(const Kernel& kernel, const StepSettings& settings, Workers& workers);

// step.cpp
void gradient_norm(const Kernel& kernel, Workers& workers);
void gradient_to_fp32(const Kernel& kernel, const StepSettings& settings, Workers& workers);
void scale_update(const Kernel& kernel, const StepSettings& settings);
// optimizer.cpp
void optimizer_update(const Kernel& kernel, const StepSettings& settings, Workers& workers);

}  // namespace zeroplan::executor::cpu
