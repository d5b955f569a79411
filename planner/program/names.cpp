#include "planner/program/step_program.hpp"

namespace zeroplan::program {

std::string_view name_of(DataType type) {
  static constexpr std::string_view kNames[kDataTypes] = {"fp32", "fp16", "bf16", "int32", "uint8"};
  return kNames[static_cast<std::size_t>(type)];
}

std::string_view name_of(Category category) {
  static constexpr std::string_view kNames[kCategories] = {"parameter",  "gradient",   "optimizer_state",
                                                           "activation", "checkpoint", "gathered",
                                                           "bucket",     "logits",     "workspace"};
  return kNames[static_cast<std::size_t>(category)];
}

std::string_view name_of(Group group) {
  switch (group) {
    case Group::data_parallel:
      return "data_parallel";
    case Group::tensor_parallel:
      return "tensor_parallel";
    case Group::none:
      break;
  }
  return "none";
}

std::string_view name_of(Phase phase) {
  static constexpr std::string_view kNames[] = {"setup", "forward", "backward", "step"};
  return kNames[static_cast<std::size_t>(phase)];
}

std::string_view name_of(Op op) {
  static constexpr std::string_view kNames[] = {"repeat",
                                                "end_repeat",
                                                "phase",
                                                "acquire",
                                                "release",
                                                "acquire_all",
                                                "release_all",
                                                "load_batch",
                                                "fill_zero",
                                                "copy",
                                                "accumulate",
                                                "copy_to_host",
                                                "copy_to_device",
                                                "accumulate_host",
                                                "embedding_forward",
                                                "norm_forward",
                                                "matmul",
                                                "rotary_forward",
                                                "attention_forward",
                                                "attention_scores",
                                                "softmax_forward",
                                                "dropout_forward",
                                                "attention_values",
                                                "activation_forward",
                                                "residual_add",
                                                "cross_entropy_maximum",
                                                "cross_entropy_exponent",
                                                "cross_entropy_loss",
                                                "route_tokens",
                                                "combine_tokens",
                                                "cross_entropy_backward",
                                                "matmul_input_gradient",
                                                "matmul_weight_gradient",
                                                "residual_backward",
                                                "activation_backward",
                                                "attention_row_dot",
                                                "attention_backward",
                                                "attention_values_backward",
                                                "dropout_backward",
                                                "softmax_backward",
                                                "attention_scores_backward",
                                                "rotary_backward",
                                                "norm_backward",
                                                "embedding_backward",
                                                "combine_backward",
                                                "route_backward",
                                                "gradient_norm",
                                                "gradient_to_fp32",
                                                "optimizer_update",
                                                "scale_update",
                                                "all_reduce",
                                                "reduce_scatter",
                                                "all_gather",
                                                "broadcast"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Op::broadcast) + 1);
  return kNames[static_cast<std::size_t>(op)];
}

}  // namespace zeroplan::program
